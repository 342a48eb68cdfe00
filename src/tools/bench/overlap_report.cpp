#include "tools/bench/overlap_report.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/base/format.h"
#include "tools/bench/report.h"
#include "tools/bench/units.h"
#include "tools/plot/pictures.h"

namespace lockstep::bench {
namespace {

constexpr size_t kSweep = 3;  // where it begins: per parameter

std::string milliseconds(double seconds) {
  return format("{:.1f}", seconds * 1e3);
}

double hidden(const Timing& timing) {
  return std::max(0.0, timing.busy - timing.shows);
}

std::string network_text(const OverlapFound::Under& network) {
  return network.latency > 0 || network.bandwidth > 0
             ? "simulated slow network: " + delay_text(network.latency, network.bandwidth)
             : std::string("the network as it is");
}

plot::Bars network_bars(const OverlapFound::Under& network) {
  plot::Bars bars;
  bars.title = "A step: " + network_text(network);
  bars.y_label = "milliseconds";
  bars.parts = {"computing", "exchange that shows"};
  for (size_t i = 1; i <= kSweep; ++i) {
    const auto& timing = network.timings[i];
    bars.names.push_back(timing.name);
    bars.values.push_back({(timing.seconds - timing.shows) * 1e3, timing.shows * 1e3});
  }
  return bars;
}

// From a bucket for each parameter to one for all.
plot::Chart sweep_of(const OverlapFound& found) {
  plot::Chart chart;
  chart.title = "A step over the size of its buckets";
  chart.x_label = "bucket_cap_mb";
  chart.y_label = "milliseconds per step";
  for (const auto& network : found.networks) {
    plot::Series series;
    series.name = network_text(network);
    const size_t count = network.timings.size() - kSweep;
    for (size_t i = 0; i < count; ++i) {
      const double part = i == 0 ? 0 : static_cast<double>(1 << (count - 1 - i));
      series.x.push_back(i == 0 ? 0 : found.megabytes / part);
      series.y.push_back(network.timings[kSweep + i].seconds * 1e3);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string what_was_trained(const OverlapFound& found) {
  return format("{}: {:.2f} MiB of gradients, {} ranks, all-reduce {}", found.task, found.megabytes,
                found.world, found.algorithm);
}

std::string same_losses(const OverlapFound& found) {
  return found.world == 2 ? "every method had the same losses, bit for bit"
                          : "every method had the same losses but for the order of the sums";
}

}  // namespace

Table table_of(const std::vector<Timing>& timings) {
  Table table = {{"milliseconds", "step", "exchange", "shows", "hidden", "hidden %"}};
  for (const auto& timing : timings) {
    const bool travels = timing.busy > 0;
    table.push_back({timing.name, milliseconds(timing.seconds), milliseconds(timing.busy),
                     milliseconds(timing.shows), milliseconds(hidden(timing)),
                     travels ? format("{:.0f}", 100 * hidden(timing) / timing.busy) : std::string("-")});
  }
  return table;
}

void tell(const OverlapFound& found) {
  const auto sweep = sweep_of(found);
  auto text = what_was_trained(found) + "\n" + same_losses(found) +
              format("; medians of {} steps, the slowest rank's time\n", found.asked.steps);
  std::vector<plot::Section> sections = {{"What was trained", "<p>" + plot::escaped(what_was_trained(found)) +
                                                                  "; " + same_losses(found) + "</p>"}};
  for (const auto& network : found.networks) {
    const auto table = table_of(network.timings);
    text += "\n" + network_text(network) + "\n" + aligned(table) + "\n" + plot::text(network_bars(network));
    sections.push_back(
        {network_text(network), plot::pictures({plot::drawn(network_bars(network))}) + plot::table(table)});
  }
  sections.push_back({"The size of the buckets", plot::pictures({plot::drawn(sweep)})});
  text += "\n" + plot::text(sweep);
  std::fputs(text.c_str(), stdout);
  write_out(found.asked.out, "lockstep bench overlap", sections,
            plot::svg(network_bars(found.networks.back())));
}

}  // namespace lockstep::bench
