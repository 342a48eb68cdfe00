// Bars side by side, as SVG.
#include <algorithm>
#include <cmath>

#include "lockstep/base/format.h"
#include "lockstep/plot/chart.h"
#include "lockstep/plot/look.h"
#include "lockstep/plot/page.h"
#include "lockstep/plot/stack.h"
#include "lockstep/plot/ticks.h"

namespace lockstep::plot {
namespace {

constexpr double kNamesHeight = 30;
constexpr size_t kMostBars = 128;

// More bars than fit: some from everywhere, and the title says so.
Bars fitting(const Bars& bars) {
  const size_t count = bars.names.size();
  if (count <= kMostBars) return bars;
  Bars few = {format("{} ({} of {})", bars.title, kMostBars, count), bars.y_label, {}, bars.parts, {}};
  for (size_t i = 0; i < kMostBars; ++i) {
    const size_t from = i * (count - 1) / (kMostBars - 1);
    few.names.push_back(bars.names[from]);
    few.values.push_back(from < bars.values.size() ? bars.values[from] : std::vector<double>{});
  }
  return few;
}

struct BarFrame {
  Axis y;
  double top, slot;

  double down(double value) const { return top + (1 - y.place(value)) * kPlotHeight; }
};

std::string bar_of(const Bars& bars, size_t bar, const BarFrame& frame, const std::string& unit_label) {
  std::string svg;
  double below = 0;
  const double wide = std::min(frame.slot * 0.72, 56.0);
  const double x = kPlotLeft + frame.slot * (static_cast<double>(bar) + 0.5) - wide / 2;
  for (size_t part = 0; part < bars.parts.size(); ++part) {
    const double value = value_at(bars, bar, part);
    if (value <= 0) continue;
    const double high = frame.down(below), low = frame.down(below + value);
    svg += format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>{}</title></rect>",
                  at(x), at(low), at(wide), at(std::max(high - low, 0.1)), colour(part),
                  escaped(format("{}, {}: {}", bars.names[bar], bars.parts[part],
                                 short_number(value, unit_of(unit_label)))));
    below += value;
  }
  return svg;
}

std::string names_below(const Bars& bars, const BarFrame& frame) {
  size_t longest = 1;
  for (const auto& name : bars.names) longest = std::max(longest, std::min<size_t>(letters_of(name), 16));
  const auto every = static_cast<size_t>(std::ceil((static_cast<double>(longest) * 6.8 + 8) / frame.slot));
  std::string svg;
  for (size_t i = 0; i < bars.names.size(); i += every) {
    svg += words(kPlotLeft + frame.slot * (static_cast<double>(i) + 0.5), frame.top + kPlotHeight + 18,
                 "middle", shortened(bars.names[i], 16));
  }
  return svg;
}

}  // namespace

std::string svg(const Bars& given) {
  const auto bars = fitting(given);
  std::vector<LegendEntry> entries;
  for (const auto& part : bars.parts) entries.push_back({part});
  double bottom = 0;
  auto inside = heading(bars.title, entries, bars.parts.size() > 1, bottom);
  std::vector<double> heights;
  for (size_t i = 0; i < bars.names.size(); ++i) heights.push_back(height_of(bars, i));
  const double slot =
      (kWidth - kPlotLeft - kPlotRight) / static_cast<double>(std::max<size_t>(1, bars.names.size()));
  const BarFrame frame = {Axis(heights, false, unit_of(bars.y_label), true), bottom + 24, slot};
  for (const double tick : frame.y.ticks()) {
    inside += format("<path class=\"g\" d=\"M{} {}H{}\"/>", at(kPlotLeft), at(frame.down(tick)),
                     at(kWidth - kPlotRight)) +
              words(kPlotLeft - 6, frame.down(tick) + 4, "end", frame.y.label(tick));
  }
  inside += words(kPlotLeft - 54, frame.top - 10, "start", shortened(without_unit(bars.y_label), 60));
  for (size_t i = 0; i < bars.names.size(); ++i) inside += bar_of(bars, i, frame, bars.y_label);
  if (bars.names.empty()) inside += words(kWidth / 2, frame.top + kPlotHeight / 2, "middle", "no data yet");
  return picture(bars.title, frame.top + kPlotHeight + kNamesHeight, inside + names_below(bars, frame));
}

}  // namespace lockstep::plot
