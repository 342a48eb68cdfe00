// The trace's last steps, rank under rank.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "lockstep/base/format.h"
#include "tools/plot/look.h"
#include "tools/plot/page.h"
#include "tools/plot/pictures.h"
#include "tools/plot/ticks.h"
#include "tools/report/parts.h"

namespace lockstep::report {
namespace {

constexpr int kMostRanks = 12, kSteps = 3;
constexpr double kLeft = 62, kRight = 30, kRow = 15, kRankGap = 9;

struct Bar {
  double begin, end, step;
  int rank, track;
  size_t colour;
  std::string name;
};

// In the order of the colours; what is not listed is not drawn, and "other" stays empty.
constexpr std::array<const char*, 8> kNames = {
    "data",      "forward",    "backward",   "waiting for communication",
    "optimiser", "all-reduce", "evaluation", "checkpoint"};

std::vector<Bar> bars_in(const nlohmann::json& trace) {
  std::vector<Bar> bars;
  for (const auto& event : list(trace, "traceEvents")) {
    if (text(event, "ph") != "X") continue;
    const auto name = text(event, "name");
    const auto kind = std::ranges::find(kNames, name) - kNames.begin();
    const double begin = number(event, "ts"), length = number(event, "dur"), rank = number(event, "pid"),
                 track = number(event, "tid"), step = number(at(event, "args"), "step");
    const bool sound = std::isfinite(begin) && std::isfinite(length) && rank >= 0 && rank < kMostRanks &&
                       track >= 0 && track < 4 && std::isfinite(step);
    if (sound && kind < static_cast<long>(kNames.size()))
      bars.push_back({begin, begin + length, step, static_cast<int>(rank), static_cast<int>(track),
                      static_cast<size_t>(kind), name});
  }
  return bars;
}

// The last steps that were computed, and not what came after them.
void keep_last_steps(std::vector<Bar>& bars) {
  double last = -std::numeric_limits<double>::infinity();
  for (const auto& bar : bars) {
    if (bar.name == "forward") last = std::max(last, bar.step);
  }
  double begin = std::numeric_limits<double>::infinity(), end = -begin;
  for (const auto& bar : bars) {
    if (bar.step <= last - kSteps || bar.name == "evaluation" || bar.name == "checkpoint" ||
        bar.name == "data")
      continue;
    begin = std::min(begin, bar.begin);
    end = std::max(end, bar.end);
  }
  std::erase_if(bars, [&](const Bar& bar) { return bar.end <= begin || bar.begin >= end; });
  for (auto& bar : bars)
    bar.begin = std::max(bar.begin, begin) - begin, bar.end = std::min(bar.end, end) - begin;
}

// Each rank's tracks under one another, and where each begins.
std::map<std::pair<int, int>, double> rows_of(const std::vector<Bar>& bars, double& bottom) {
  std::map<std::pair<int, int>, double> rows;
  for (const auto& bar : bars) rows[{bar.rank, bar.track}] = 0;
  int rank = -1;
  for (auto& [key, y] : rows) {
    if (rank >= 0 && rank != key.first) bottom += kRankGap;
    rank = key.first;
    y = bottom;
    bottom += kRow + 1;
  }
  return rows;
}

struct Strip {
  plot::Axis axis;
  double width;

  double across(double seconds) const { return kLeft + axis.place(seconds) * (width - kLeft - kRight); }
};

std::string drawn(const Bar& bar, double y, const Strip& strip) {
  const double begin = strip.across(bar.begin / 1e6), end = strip.across(bar.end / 1e6);
  return format(
      "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{}</title></rect>",
      begin, plot::at(y), std::max(end - begin, 0.15), plot::at(kRow), plot::colour(bar.colour),
      plot::escaped(format("rank {}, step {:.0f}, {}: {}", bar.rank, bar.step, bar.name,
                           plot::short_number((bar.end - bar.begin) / 1e6, plot::Unit::seconds))));
}

std::string marks(const Strip& strip, double top, double bottom) {
  std::string svg;
  for (const double tick : strip.axis.ticks()) {
    const double x = strip.across(tick);
    svg +=
        format("<path class=\"g\" d=\"M{} {}V{}\"/>", plot::at(x), plot::at(top - 3), plot::at(bottom + 4)) +
        plot::words(x, bottom + 18, "middle", strip.axis.label(tick));
  }
  return svg;
}

// What is drawn, in the order of the colours.
std::vector<plot::LegendEntry> legend_of(const std::vector<Bar>& bars) {
  std::vector<plot::LegendEntry> entries;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const bool there = std::ranges::any_of(bars, [&](const Bar& bar) { return bar.colour == i; });
    if (there) entries.push_back({kNames[i], false, static_cast<int>(i)});
  }
  return entries;
}

std::string picture_of(const std::string& title, const std::vector<Bar>& bars, double width) {
  double top = 0, last = 0;
  auto inside = plot::heading(title, legend_of(bars), true, width, top);
  double bottom = top += 10;
  const auto rows = rows_of(bars, bottom);
  for (const auto& bar : bars) last = std::max(last, bar.end / 1e6);
  const Strip strip = {plot::Axis({0, last}, false, plot::Unit::seconds, true), width};
  inside += marks(strip, top, bottom);
  for (const auto& bar : bars) inside += drawn(bar, rows.at({bar.rank, bar.track}), strip);
  for (const auto& [key, y] : rows) {
    if (key.second == 0) inside += plot::words(kLeft - 6, y + 12, "end", format("rank {}", key.first));
  }
  return plot::picture(title, width, bottom + 28, inside);
}

}  // namespace

std::string time_line(const Runs& runs) {
  std::vector<plot::Draw> cards;
  for (const auto& run : runs) {
    auto bars = bars_in(run.trace);
    keep_last_steps(bars);
    if (bars.empty()) continue;
    cards.emplace_back([title = run.name + ": the trace's last steps", bars](double width) {
      return picture_of(title, bars, width);
    });
  }
  if (cards.empty()) return "";
  return plot::pictures(cards) +
         "<p class=\"soft\">Under a rank's own work, its buckets of gradients on their way. The whole trace "
         "opens in "
         "ui.perfetto.dev or chrome://tracing: trace.json in the run's folder.</p>";
}

}  // namespace lockstep::report
