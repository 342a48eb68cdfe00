#pragma once
// What an axis has to show: a coordinate of all a chart's points.

#include <vector>

#include "tools/plot/chart.h"

namespace lockstep::plot {

/// Of all series, one behind the other; `member` is &Series::x or &Series::y.
inline std::vector<double> all_values(const Chart& chart, std::vector<double> Series::*member) {
  std::vector<double> values;
  for (const auto& series : chart.series) {
    values.insert(values.end(), (series.*member).begin(), (series.*member).end());
  }
  return values;
}

inline std::vector<double> y_values(const Chart& chart) {
  auto values = all_values(chart, &Series::y);
  values.insert(values.end(), chart.also.begin(), chart.also.end());
  return values;
}

}  // namespace lockstep::plot
