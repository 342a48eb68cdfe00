#pragma once
// Times over sizes, way by way: which is the fastest where, and what that looks like.

#include <cstdint>
#include <string>
#include <vector>

#include "tools/plot/chart.h"

namespace lockstep::bench {

struct TimeCurve {
  std::string name;
  std::vector<double> seconds;  // one for each size
  bool is_model = false;
  int look = -1;  // of a way and its model the same, in all plots of a page
};
using Table = std::vector<std::vector<std::string>>;  // the first row is its head

/// Which of the curves is the fastest, by size: "all_to_all up to 4 KiB, then ring".
std::string crossovers(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves);

/// A row a curve, a column a size, in microseconds.
Table table_of(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves);
/// The same as multiples of the fastest's.
Table ratio_table(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves);
/// For a terminal.
std::string aligned(const Table& table);

/// So many that eyes tell their lines apart: the fastest for the most bytes, in the curves' order.
constexpr size_t kFewCurves = 5;
std::vector<TimeCurve> fastest_few(const std::vector<TimeCurve>& curves);

plot::Chart time_chart(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves);
/// Of each that is measured a chart: its line and its model's, in front of all others; the axes are the same.
std::vector<plot::Chart> charts_one_by_one(const std::vector<int64_t>& sizes,
                                           const std::vector<TimeCurve>& curves);
/// Bus bandwidth: what a line would have to carry if each rank sent 2 (P-1)/P of the bytes, the least there
/// is.
plot::Chart bandwidth_chart(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves,
                            int world);

}  // namespace lockstep::bench
