#pragma once
// Pictures on a page: each drawn for a phone and for a desk, side by side where there is room.

#include <functional>
#include <string>
#include <vector>

#include "tools/plot/chart.h"

namespace lockstep::plot {

/// An <svg> element so wide.
using Draw = std::function<std::string(double width)>;

inline Draw drawn(Chart chart) {
  return [chart = std::move(chart)](double width) { return svg(chart, width); };
}
inline Draw drawn(Bars bars) {
  return [bars = std::move(bars)](double width) { return svg(bars, width); };
}

/// Cards for a page's section; the last of an odd number is as wide as the page.
std::string pictures(const std::vector<Draw>& draws);

/// For page()'s style: which of a card's forms is seen.
extern const char* const kPicturesStyle;

}  // namespace lockstep::plot
