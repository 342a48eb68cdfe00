// Lines over a common x, as SVG.
#include <algorithm>
#include <cmath>

#include "lockstep/base/format.h"
#include "tools/plot/all_values.h"
#include "tools/plot/chart.h"
#include "tools/plot/look.h"
#include "tools/plot/ticks.h"

namespace lockstep::plot {
namespace {

constexpr double kBelowPlot = 44, kBetweenLabels = 6;
constexpr size_t kDots = 40;  // a line of more points needs no dot at each

struct Point {
  double x, y;
};

struct Frame {
  Axis x, y;
  double width, top;

  double right() const { return width - kPlotRight; }
  double across(double value) const { return kPlotLeft + x.place(value) * (right() - kPlotLeft); }
  double down(double value) const { return top + (1 - y.place(value)) * kPlotHeight; }
};

std::vector<Point> placed(const Series& series, const Frame& frame) {
  std::vector<Point> points;
  for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
    if (!frame.x.shows(series.x[i]) || !frame.y.shows(series.y[i])) continue;
    points.push_back({frame.across(series.x[i]), frame.down(series.y[i])});
  }
  return points;
}

// More points than the eye can tell apart: of each half unit the first, the highest, the lowest and the last.
std::vector<Point> thinned(const std::vector<Point>& points, double width) {
  if (points.size() <= 2 * static_cast<size_t>(width)) return points;
  std::vector<Point> kept;
  for (size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    while (end < points.size() && std::floor(2 * points[end].x) == std::floor(2 * points[begin].x)) ++end;
    const auto first = points.begin() + static_cast<int64_t>(begin),
               last = points.begin() + static_cast<int64_t>(end);
    auto [low, high] = std::minmax_element(first, last, [](auto& a, auto& b) { return a.y < b.y; });
    if (high < low) std::swap(low, high);
    for (const auto& point : {*first, *low, *high, *(last - 1)}) {
      if (kept.empty() || kept.back().x != point.x || kept.back().y != point.y) kept.push_back(point);
    }
  }
  return kept;
}

std::string line(const Series& series, size_t n, const Frame& frame) {
  const auto points = thinned(placed(series, frame), frame.width);
  if (points.empty()) return "";
  std::string path, dots;
  for (const auto& [x, y] : points) path += format("{}{} {}", path.empty() ? "M" : "L", at(x), at(y));
  if (!series.faint && points.size() <= kDots && (!series.dashed || points.size() == 1)) {
    const auto filled = series.dashed ? "none\" stroke=\"" + colour(n) : colour(n);  // a model's is a ring
    for (const auto& [x, y] : points)
      dots += format("<circle cx=\"{}\" cy=\"{}\" r=\"2.6\" fill=\"{}\"/>", at(x), at(y), filled);
  }
  return format("<path {} d=\"{}\"/>", line_look({n, series.dashed, series.faint}), path) + dots;
}

std::string grid(const Chart& chart, const Frame& frame) {
  std::string svg;
  for (const double tick : frame.y.ticks()) {
    const double y = frame.down(tick);
    svg += format("<path class=\"g\" d=\"M{} {}H{}\"/>", at(kPlotLeft), at(y), at(frame.right())) +
           words(kPlotLeft - 6, y + 4, "end", frame.y.label(tick));
  }
  double free_from = 0;
  for (const double tick : frame.x.ticks()) {
    const double x = frame.across(tick);
    svg += format("<path class=\"g\" d=\"M{} {}v5\"/>", at(x), at(frame.top + kPlotHeight));
    const auto label = frame.x.label(tick);
    const double half = width_of(label) / 2;
    if (x - half < free_from) continue;
    svg += words(std::min(x, frame.width - half), frame.top + kPlotHeight + 18, "middle", label);
    free_from = x + half + kBetweenLabels;
  }
  const double room = frame.width - 2 * kLabelLeft;
  return svg +
         words(kLabelLeft, frame.top - kLabelAbove, "start", fitting(without_unit(chart.y_label), room)) +
         words(frame.right(), frame.top + kPlotHeight + 37, "end",
               fitting(without_unit(chart.x_label), room));
}

}  // namespace

std::string svg(const Chart& chart, double width) {
  std::vector<LegendEntry> entries;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const auto& series = chart.series[i];
    const auto look = static_cast<int>(look_of(series.look, i));
    if (!series.faint || !series.name.empty())
      entries.push_back({series.name, series.dashed, look, series.faint});
  }
  double bottom = 0;
  auto inside = heading(chart.title, entries, false, width, bottom);
  const Frame frame = {Axis(all_values(chart, &Series::x), chart.log_x, unit_of(chart.x_label)),
                       Axis(y_values(chart), chart.log_y, unit_of(chart.y_label)), width,
                       bottom + kAbovePlot};
  inside += grid(chart, frame);
  std::string lines;
  for (const bool faint : {true, false}) {
    for (size_t i = 0; i < chart.series.size(); ++i) {
      const auto& series = chart.series[i];
      if (series.faint == faint) lines += line(series, look_of(series.look, i), frame);
    }
  }
  if (lines.empty()) lines = words(width / 2, frame.top + kPlotHeight / 2, "middle", "no data yet");
  return picture(chart.title, width, frame.top + kPlotHeight + kBelowPlot, inside + lines);
}

}  // namespace lockstep::plot
