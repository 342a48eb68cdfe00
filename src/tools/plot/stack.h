#pragma once
// How high a bar's parts are, whatever numbers came: what is missing, negative or not finite is nothing.

#include <cstddef>

#include "tools/plot/chart.h"

namespace lockstep::plot {

double value_at(const Bars& bars, size_t bar, size_t part);
/// All parts of a bar together.
double height_of(const Bars& bars, size_t bar);

}  // namespace lockstep::plot
