#include "tools/bench/dp_vs_ddp.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/launch/identify.h"
#include "tools/bench/measure.h"
#include "tools/report/numbers.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"

namespace lockstep::bench {
namespace {

constexpr double kRounding = 1e-4;  // of a loss, after a few steps
// The workshop's notebook "0.24 Distributed Training: DataParallel vs DistributedDataParallel" (F. Hirwa
// Nshuti): five epochs of MNIST, batches of 256, two GPUs.
constexpr double kNotebookDp = 18.31, kNotebookDdp = 6.09;
constexpr std::chrono::minutes kLongest{10};  // one run

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

// The environment that torchrun sets for each process of one node.
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

// Starts the processes of a way, waits for all, and returns the first one's result. The error of any of them
// is thrown.
DpVsDdpFound run_way(const std::string& way, const DpVsDdp& wanted) {
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

void verify(const std::string& way, const DpVsDdpFound& found, const DpVsDdpFound& other) {
  bool alike = found.losses.size() == other.losses.size() && found.batch == other.batch;
  for (size_t i = 0; alike && i < found.losses.size(); ++i) {
    const double scale = std::max(1.0, std::abs(other.losses[i]));
    if (std::abs(found.losses[i] - other.losses[i]) <= kRounding * scale) continue;
    throw Error(
        format("step {}: the loss of '{}' is {}, and DDP's {}", i + 1, way, found.losses[i], other.losses[i]),
        "bench dp-vs-ddp",
        "a model with Dropout or BatchNorm has other numbers in each: take one without; so has an epoch's "
        "last batch where the samples do not divide: --set data.drop_last_batch=true");
  }
  if (!alike) throw Error("'" + way + "' took other steps than DDP", "bench dp-vs-ddp");
}

// The mean of the ranks' weighted means is not the weighted mean of all samples.
void check_config(const DpVsDdp& wanted) {
  const auto file = config::read_config_text(wanted.config);
  const auto loaded = config::load_settings(file.text, file.name, wanted.sets, launch::current_environment());
  const auto& task = loaded.settings.task;
  if (!task.weighs_classes()) return;
  throw InputError(
      format("with task.class_weights {} DDP's loss differs from that of one process", task.class_weights),
      wanted.config, "compare without them: --set task.class_weights=none");
}

DpVsDdpResults measure_runs(const DpVsDdp& wanted) {
  DpVsDdpResults results;
  for (int64_t run = 0; run < wanted.repeats; ++run) {
    for (const auto& way : kWays) {
      auto found = run_way(way, wanted);
      results.seconds[way].push_back(spread_of(found.seconds).mean);
      results.last[way] = std::move(found);
    }
    for (const auto& way : kWays) verify(way, results.last[way], results.last["ddp"]);
  }
  for (const auto& way : kWide) results.last[way] = run_way(way, wanted);
  return results;
}

std::string mib_of(const std::vector<double>& bytes) {
  std::string text;
  for (const double number : bytes)
    text += (text.empty() ? "" : " | ") + format("{:.1f}", number / (1 << 20));
  return text;
}

// Says which of the two is faster.
std::string against(double times_as_long) {
  if (format("{:.2f}", times_as_long) == "1.00") return "-";
  return times_as_long > 1 ? format("{:.2f}x slower", times_as_long)
                           : format("{:.2f}x faster", 1 / times_as_long);
}

report::Table speed_rows(const DpVsDdpResults& results) {
  report::Table rows = {
      {"way", "ms a step: min", "median", "max", "samples/s", "against ddp", "peak MiB, device by device"}};
  const double base = spread_of(results.seconds.at("ddp")).median;
  for (const auto& way : kWays) {
    const auto& found = results.last.at(way);
    const auto times = spread_of(results.seconds.at(way));
    rows.push_back({way, format("{:.2f}", 1e3 * times.least), format("{:.2f}", 1e3 * times.median),
                    format("{:.2f}", 1e3 * times.most),
                    format("{:.0f}", static_cast<double>(found.batch) / times.median),
                    against(times.median / base), mib_of(found.peaks)});
  }
  rows.push_back({"the notebook's dp, 2 GPUs", "", format("{:.2f} s in all", kNotebookDp), "", "",
                  against(kNotebookDp / kNotebookDdp), "not reported"});
  rows.push_back({"the notebook's ddp, 2 GPUs", "", format("{:.2f} s in all", kNotebookDdp), "", "", "-",
                  "not reported"});
  return rows;
}

report::Table wide_rows(const DpVsDdpResults& results) {
  report::Table rows = {{"64 -> 20000 outputs, batch 256", "peak MiB, device by device"}};
  for (const auto& way : kWide) rows.push_back({way, mib_of(results.last.at(way).peaks)});
  return rows;
}

report::Bars speed_bars(const DpVsDdpResults& results) {
  report::Bars bars{
      .title = "A step", .y_label = "median (s)", .names = kWays, .parts = {"time"}, .values = {}};
  for (const auto& way : kWays) bars.values.push_back({spread_of(results.seconds.at(way)).median});
  return bars;
}

report::Bars memory_bars(const DpVsDdpResults& results) {
  report::Bars bars{.title = "Peak memory a device, wide outputs",
                    .y_label = "memory (bytes)",
                    .names = {},
                    .parts = {"memory"},
                    .values = {}};
  for (const auto& way : kWide) {
    const auto& peaks = results.last.at(way).peaks;
    for (size_t i = 0; i < peaks.size(); ++i) {
      bars.names.push_back(format("{} {}", way == kWide[0] ? "gathered" : "loss inside", i));
      bars.values.push_back({peaks[i]});
    }
  }
  return bars;
}

}  // namespace

report::Page page_of(const DpVsDdpResults& results, const std::string& facts) {
  report::Page page("DataParallel against DistributedDataParallel");
  page.section("A step");
  page.text(facts + "\n");
  page.table(speed_rows(results));
  page.bars(speed_bars(results));
  page.section("Memory of each device");
  page.table(wide_rows(results));
  page.bars(memory_bars(results));
  return page;
}

void dp_vs_ddp(const DpVsDdp& wanted) {
  check_out(wanted.out);
  check_place(wanted.out);
  check_config(wanted);
  const auto results = measure_runs(wanted);
  const auto& ddp = results.last.at("ddp");
  const auto facts = format(
      "{}: {} devices, {} samples a step, {} step{}, {} run{} of each way in turn. The losses of {} steps "
      "agree.",
      wanted.config, wanted.devices, ddp.batch, wanted.steps, wanted.steps == 1 ? "" : "s", wanted.repeats,
      wanted.repeats == 1 ? "" : "s", ddp.losses.size());
  print_and_write(page_of(results, facts), wanted.out);
}

}  // namespace lockstep::bench
