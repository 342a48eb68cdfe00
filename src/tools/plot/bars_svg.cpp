// Bars side by side, as SVG.
#include <algorithm>
#include <cmath>

#include "lockstep/base/format.h"
#include "tools/plot/chart.h"
#include "tools/plot/look.h"
#include "tools/plot/page.h"
#include "tools/plot/stack.h"
#include "tools/plot/ticks.h"

namespace lockstep::plot {
namespace {

constexpr double kNamesHeight = 16, kNameRow = 15;
constexpr size_t kMostBroken = 16, kMostRows = 3;  // names that are broken into rows
constexpr size_t kMostBars = 128;

// More bars than fit: some from everywhere, and the title says so.
Bars not_too_many(const Bars& bars) {
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
  double width, top, slot;

  double down(double value) const { return top + (1 - y.place(value)) * kPlotHeight; }
};

std::string bar_of(const Bars& bars, size_t bar, const BarFrame& frame, const std::string& unit_label) {
  std::string svg;
  double below = 0;
  const double wide = std::min(frame.slot * 0.72, frame.width / 10);
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

// Few bars have all their names, of many only so many as have room.
std::string names_below(const Bars& bars, const BarFrame& frame, size_t& most_rows) {
  constexpr double kBetween = 8, kWidest = 130;
  double widest = 1;
  for (const auto& name : bars.names) widest = std::max(widest, std::min(width_of(name), kWidest));
  const bool all = bars.names.size() <= kMostBroken;
  const auto every = all ? 1 : static_cast<size_t>(std::ceil((widest + kBetween) / frame.slot));
  std::string svg;
  for (size_t i = 0; i < bars.names.size(); i += every) {
    const double x = kPlotLeft + frame.slot * (static_cast<double>(i) + 0.5);
    const auto rows = all ? broken(bars.names[i], frame.slot - kBetween / 2, kMostRows)
                          : std::vector<std::string>{fitting(bars.names[i], kWidest)};
    for (size_t row = 0; row < rows.size(); ++row)
      svg +=
          words(x, frame.top + kPlotHeight + 18 + kNameRow * static_cast<double>(row), "middle", rows[row]);
    most_rows = std::max(most_rows, rows.size());
  }
  return svg;
}

}  // namespace

std::string svg(const Bars& given, double width) {
  const auto bars = not_too_many(given);
  std::vector<LegendEntry> entries;
  for (const auto& part : bars.parts) entries.push_back({part});
  double bottom = 0;
  auto inside = heading(bars.title, entries, bars.parts.size() > 1, width, bottom);
  std::vector<double> heights;
  for (size_t i = 0; i < bars.names.size(); ++i) heights.push_back(height_of(bars, i));
  const double slot =
      (width - kPlotLeft - kPlotRight) / static_cast<double>(std::max<size_t>(1, bars.names.size()));
  const BarFrame frame = {Axis(heights, false, unit_of(bars.y_label), true), width, bottom + kAbovePlot,
                          slot};
  for (const double tick : frame.y.ticks()) {
    inside += format("<path class=\"g\" d=\"M{} {}H{}\"/>", at(kPlotLeft), at(frame.down(tick)),
                     at(width - kPlotRight)) +
              words(kPlotLeft - 6, frame.down(tick) + 4, "end", frame.y.label(tick));
  }
  inside += words(kLabelLeft, frame.top - kLabelAbove, "start",
                  fitting(without_unit(bars.y_label), width - 2 * kLabelLeft));
  for (size_t i = 0; i < bars.names.size(); ++i) inside += bar_of(bars, i, frame, bars.y_label);
  if (bars.names.empty()) inside += words(width / 2, frame.top + kPlotHeight / 2, "middle", "no data yet");
  size_t rows = 1;
  inside += names_below(bars, frame, rows);
  return picture(bars.title, width,
                 frame.top + kPlotHeight + kNamesHeight + kNameRow * static_cast<double>(rows), inside);
}

}  // namespace lockstep::plot
