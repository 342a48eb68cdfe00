#include "tools/bench/dp_vs_ddp_report.h"

#include <algorithm>

#include "lockstep/base/format.h"
#include "tools/bench/report.h"
#include "tools/bench/units.h"
#include "tools/plot/page.h"
#include "tools/plot/pictures.h"

namespace lockstep::bench {
namespace {

// The workshop's notebook "0.24 Distributed Training: DataParallel vs DistributedDataParallel" (F. Hirwa
// Nshuti): five epochs of MNIST, batches of 256, two GPUs.
constexpr double kNotebookDp = 18.31, kNotebookDdp = 6.09;

struct RunTimes {
  double min, median, max;
};

RunTimes run_times_of(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const size_t half = numbers.size() / 2;
  const double median = (numbers[half] + numbers[(numbers.size() - 1) / 2]) / 2;
  return {numbers.front(), median, numbers.back()};
}

std::string mib_of(const std::vector<double>& bytes) {
  std::string text;
  for (const double number : bytes) text += (text.empty() ? "" : " | ") + format("{:.1f}", number / kMiB);
  return text;
}

// A number alone would leave open which of the two is better.
std::string against(double times_as_long) {
  if (format("{:.2f}", times_as_long) == "1.00") return "-";
  return times_as_long > 1 ? format("{:.2f}x slower", times_as_long)
                           : format("{:.2f}x faster", 1 / times_as_long);
}

using Rows = std::vector<std::vector<std::string>>;

Rows speed_rows(const Results& results) {
  Rows rows = {
      {"way", "ms a step: min", "median", "max", "samples/s", "against ddp", "peak MiB, device by device"}};
  const double base = run_times_of(results.milliseconds.at("ddp")).median;
  for (const auto& way : kWays) {
    const auto& found = results.last.at(way);
    const auto [min, median, max] = run_times_of(results.milliseconds.at(way));
    rows.push_back({way, format("{:.2f}", min), format("{:.2f}", median), format("{:.2f}", max),
                    format("{:.0f}", 1e3 * static_cast<double>(found.batch) / median), against(median / base),
                    mib_of(found.peaks)});
  }
  rows.push_back({"the notebook's dp, 2 GPUs", "", format("{:.2f} s in all", kNotebookDp), "", "",
                  against(kNotebookDp / kNotebookDdp), "not reported"});
  rows.push_back({"the notebook's ddp, 2 GPUs", "", format("{:.2f} s in all", kNotebookDdp), "", "", "-",
                  "not reported"});
  return rows;
}

Rows wide_rows(const Results& results) {
  Rows rows = {{"64 -> 20000 outputs, batch 256", "peak MiB, device by device"}};
  for (const auto& way : kWide) rows.push_back({way, mib_of(results.last.at(way).peaks)});
  return rows;
}

std::string as_text(const Rows& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

plot::Bars speed_bars(const Results& results) {
  plot::Bars bars{.title = "A step", .y_label = "ms, median", .names = kWays, .parts = {"ms"}, .values = {}};
  for (const auto& way : kWays) bars.values.push_back({run_times_of(results.milliseconds.at(way)).median});
  return bars;
}

plot::Bars memory_bars(const Results& results) {
  plot::Bars bars{.title = "Peak memory a device, wide outputs",
                  .y_label = "MiB",
                  .names = {},
                  .parts = {"MiB"},
                  .values = {}};
  for (const auto& way : kWide) {
    const auto& peaks = results.last.at(way).peaks;
    for (size_t i = 0; i < peaks.size(); ++i) {
      bars.names.push_back(format("{} {}", way == kWide[0] ? "gathered" : "loss inside", i));
      bars.values.push_back({peaks[i] / kMiB});
    }
  }
  return bars;
}

}  // namespace

std::string as_text(const Results& results) {
  return as_text(speed_rows(results)) + "\n" + plot::text(speed_bars(results)) + "\n" +
         as_text(wide_rows(results)) + "\n" + plot::text(memory_bars(results));
}

void write_page(const std::string& path, const Results& results, const std::string& facts) {
  const auto bars = speed_bars(results);
  write_out(path, "DataParallel against DistributedDataParallel",
            {{"Pictures", plot::pictures({plot::drawn(bars), plot::drawn(memory_bars(results))})},
             {"A step", "<p>" + plot::escaped(facts) + "</p>" + plot::table(speed_rows(results))},
             {"Memory of each device", plot::table(wide_rows(results))}},
            plot::svg(bars));
}

}  // namespace lockstep::bench
