#include "tools/plot/stack.h"

#include <cmath>

namespace lockstep::plot {

double value_at(const Bars& bars, size_t bar, size_t part) {
  if (bar >= bars.values.size() || part >= bars.values[bar].size()) return 0;
  const double value = bars.values[bar][part];
  return std::isfinite(value) && value > 0 ? value : 0;
}

double height_of(const Bars& bars, size_t bar) {
  double sum = 0;
  for (size_t part = 0; part < bars.parts.size(); ++part) sum += value_at(bars, bar, part);
  return sum;
}

}  // namespace lockstep::plot
