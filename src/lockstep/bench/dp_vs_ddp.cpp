#include "lockstep/bench/dp_vs_ddp.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <thread>

#include "lockstep/base/capture.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/output.h"
#include "lockstep/bench/report.h"
#include "lockstep/config/load.h"
#include "lockstep/launch/identify.h"
#include "lockstep/plot/chart.h"
#include "lockstep/plot/page.h"

namespace lockstep::bench {
namespace {

constexpr std::chrono::minutes kLongest{10};  // one run
constexpr double kRounding = 1e-4;            // of a loss, after a few steps
constexpr double kMiB = 1 << 20;
const std::vector<std::string> kWays = {"dp", "dp, loss inside", "ddp"};
const std::vector<std::string> kWide = {"wide", "wide, loss inside"};

// The workshop's notebook "0.24 Distributed Training: DataParallel vs DistributedDataParallel" (F. Hirwa
// Nshuti): five epochs of MNIST, batches of 256, two GPUs.
constexpr double kNotebookDp = 18.31, kNotebookDdp = 6.09;

std::string free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  const bool found =
      listener >= 0 && ::bind(listener, plain, size) == 0 && ::getsockname(listener, plain, &size) == 0;
  if (listener >= 0) ::close(listener);
  if (!found) throw Error("no free port on the loopback interface", "bench dp-vs-ddp");
  return std::to_string(ntohs(address.sin_port));
}

std::vector<std::string> words_of(const std::string& way, const DpVsDdp& wanted) {
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                    "bench",
                                    "dp-vs-ddp",
                                    "--part",
                                    way,
                                    "--config",
                                    wanted.config,
                                    "--log",
                                    "error",
                                    "--devices",
                                    std::to_string(wanted.devices),
                                    "--steps",
                                    std::to_string(wanted.steps)};
  for (const auto& set : wanted.sets) words.insert(words.end(), {"--set", set});
  return words;
}

// What torchrun would tell each process of one node.
std::vector<std::string> rank_settings(int64_t rank, int64_t world, const std::string& port) {
  return {format("RANK={}", rank),
          format("LOCAL_RANK={}", rank),
          format("WORLD_SIZE={}", world),
          format("LOCAL_WORLD_SIZE={}", world),
          "GROUP_RANK=0",
          "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=" + port,
          "TORCHELASTIC_RUN_ID=bench",
          "TORCHELASTIC_RESTART_COUNT=0"};
}

// All processes of a way; the first one's answer.
Found run_way(const std::string& way, const DpVsDdp& wanted) {
  const int64_t world = way == "ddp" ? wanted.devices : 1;
  const auto words = words_of(way, wanted);
  const auto port = world > 1 ? free_port() : "";
  std::vector<std::optional<std::string>> answers(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto settings = way == "ddp" ? rank_settings(rank, world, port) : std::vector<std::string>();
      answers[static_cast<size_t>(rank)] = base::capture(words, kLongest, settings);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& answer : answers) {
    if (answer) (void)read_outcome(*answer);  // throws its error
  }
  if (!std::all_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.has_value(); }))
    throw Error("a process of '" + way + "' failed or took too long", "bench dp-vs-ddp",
                "try the same config with `lockstep train`");
  return read_outcome(*answers.front());
}

struct Spread {
  double min, median, max;
};

Spread spread_of(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return {numbers.front(), numbers[numbers.size() / 2], numbers.back()};
}

double mean_of(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

void verify(const std::string& way, const Found& found, const Found& other) {
  bool alike = found.losses.size() == other.losses.size() && found.batch == other.batch;
  for (size_t i = 0; alike && i < found.losses.size(); ++i) {
    const double scale = std::max(1.0, std::abs(other.losses[i]));
    if (std::abs(found.losses[i] - other.losses[i]) <= kRounding * scale) continue;
    throw Error(
        format("step {}: the loss of '{}' is {}, and DDP's {}", i + 1, way, found.losses[i], other.losses[i]),
        "bench dp-vs-ddp", "a model with Dropout or BatchNorm has other numbers in each: take one without");
  }
  if (!alike) throw Error("'" + way + "' took other steps than DDP", "bench dp-vs-ddp");
}

// A mean of the ranks' weighted means is no weighted mean of all samples.
void check_config(const DpVsDdp& wanted) {
  const auto file = config::read_config_text(wanted.config);
  const auto loaded = config::load_settings(file.text, file.name, wanted.sets, launch::current_environment());
  const auto& weights = loaded.settings.task.class_weights;
  if (weights == "none") return;
  throw InputError(format("with task.class_weights {} DDP's loss is another than one process's", weights),
                   wanted.config, "compare without them: --set task.class_weights=none");
}

struct Results {
  std::map<std::string, std::vector<double>> milliseconds;  // a step, a run
  std::map<std::string, Found> last;
};

Results measure(const DpVsDdp& wanted) {
  Results results;
  for (int64_t run = 0; run < wanted.repeats; ++run) {
    for (const auto& way : kWays) {
      auto found = run_way(way, wanted);
      results.milliseconds[way].push_back(1e3 * mean_of(found.seconds));
      results.last[way] = std::move(found);
    }
    for (const auto& way : kWays) verify(way, results.last[way], results.last["ddp"]);
  }
  for (const auto& way : kWide) results.last[way] = run_way(way, wanted);
  return results;
}

std::string mib_of(const std::vector<double>& bytes) {
  std::string text;
  for (const double number : bytes) text += (text.empty() ? "" : " | ") + format("{:.1f}", number / kMiB);
  return text;
}

using Rows = std::vector<std::vector<std::string>>;

Rows speed_rows(const Results& results) {
  Rows rows = {
      {"way", "ms a step: min", "median", "max", "samples/s", "against ddp", "peak MiB, device by device"}};
  const double base = spread_of(results.milliseconds.at("ddp")).median;
  for (const auto& way : kWays) {
    const auto& found = results.last.at(way);
    const auto [min, median, max] = spread_of(results.milliseconds.at(way));
    rows.push_back({way, format("{:.2f}", min), format("{:.2f}", median), format("{:.2f}", max),
                    format("{:.0f}", 1e3 * static_cast<double>(found.batch) / median),
                    format("{:.2f}x", median / base), mib_of(found.peaks)});
  }
  rows.push_back({"the notebook's dp, 2 GPUs", "", format("{:.2f} s in all", kNotebookDp), "", "",
                  format("{:.2f}x", kNotebookDp / kNotebookDdp), "not told"});
  rows.push_back({"the notebook's ddp, 2 GPUs", "", format("{:.2f} s in all", kNotebookDdp), "", "", "1.00x",
                  "not told"});
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
  for (const auto& way : kWays) bars.values.push_back({spread_of(results.milliseconds.at(way)).median});
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

void write_page(const std::string& path, const Results& results, const std::string& facts) {
  const auto bars = plot::svg(speed_bars(results));
  write_out(path, "DataParallel against DistributedDataParallel",
            {{"A step", "<p>" + plot::escaped(facts) + "</p>" + plot::table(speed_rows(results)) + bars},
             {"Memory of each device", plot::table(wide_rows(results)) + plot::svg(memory_bars(results))}},
            bars);
}

}  // namespace

void dp_vs_ddp(const DpVsDdp& wanted) {
  check_out(wanted.out);
  check_place(wanted.out);
  check_config(wanted);
  const auto results = measure(wanted);
  const auto facts = format(
      "{}: {} devices, {} samples a step, {} step{}, {} run{} of each way in turn. The losses of {} steps "
      "agree.",
      wanted.config, wanted.devices, results.last.at("ddp").batch, wanted.steps, wanted.steps == 1 ? "" : "s",
      wanted.repeats, wanted.repeats == 1 ? "" : "s", results.last.at("ddp").losses.size());
  output::line(facts);
  output::print("\n" + as_text(speed_rows(results)) + "\n" + plot::text(speed_bars(results)) + "\n" +
                as_text(wide_rows(results)) + "\n" + plot::text(memory_bars(results)));
  if (wanted.out.empty()) return;
  write_page(wanted.out, results, facts);
  output::line("the plots are in " + wanted.out);
}

}  // namespace lockstep::bench
