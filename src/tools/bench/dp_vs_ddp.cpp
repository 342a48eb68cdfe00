// `lockstep bench dp-vs-ddp`.
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/rendezvous/network.h"
#include "lockstep/launch/identify.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/device_memory.h"
#include "tools/bench/bench.h"
#include "tools/bench/measure.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"

namespace lockstep::bench {
namespace {

const std::vector<std::string> kWays = {"dp", "dp, loss inside", "ddp"};
const std::vector<std::string> kWide = {"wide", "wide, loss inside"};  // peak memory where outputs are wide

// What one process of a way found.
struct Part {
  std::vector<double> losses = {};   // of the whole batch, a step
  std::vector<double> seconds = {};  // a step
  std::vector<int64_t> peaks = {};   // bytes, a device
  int64_t batch = 0;                 // samples of a step
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Part, losses, seconds, peaks, batch)

// --- one process of a way ---

constexpr int64_t kWarmUp = 3;  // steps: libtorch's own start, DDP's buckets
constexpr int64_t kInputs = 64, kOutputs = 20'000, kSamples = 256;

Settings settings_of(const std::string& config, const std::vector<std::string>& sets) {
  const auto file = config::read_config_text(config);
  return config::load_settings(file.text, file.name, sets, launch::current_environment()).settings;
}

struct Head : torch::nn::Cloneable<Head> {
  Head() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(kInputs, kOutputs)); }
  at::Tensor forward(const at::Tensor& x) { return linear->forward(x); }
  torch::nn::Linear linear{nullptr};
};

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

train::Command command_of_way(const std::string& way, const DpVsDdpBench& wanted) {
  train::Command command;
  command.config = wanted.config;
  command.sets = wanted.sets;
  command.launcher = way == "ddp" ? "torchrun" : "none";
  std::vector<std::string> own = {"train.accumulate=1", "train.mode=ddp"};
  if (way != "ddp") {
    const auto batch = settings_of(wanted.config, wanted.sets).data.batch_size;  // of a rank
    own = {"train.accumulate=1", "train.mode=data_parallel",
           format("data_parallel.devices={}", wanted.devices),
           format("data_parallel.loss_in_forward={}", way == "dp, loss inside"),
           format("data.batch_size={}", batch * wanted.devices)};
  }
  command.sets.insert(command.sets.end(), own.begin(), own.end());
  return command;
}

Part train_part(const std::string& way, const DpVsDdpBench& wanted) {
  const auto setup = train::set_up(command_of_way(way, wanted));
  const auto& team = *setup.team;
  parallel::DeviceMemory memory(way == "ddp" ? std::vector{team.device()}
                                             : devices_like(team.device(), static_cast<int>(wanted.devices)));
  TrainingSteps steps(setup);
  if (!steps.learner().source->is_shared())
    throw InputError(
        format("task {} generates its samples, which differ on each rank", setup.settings.task.name),
        "task.name", "use a config with a data set, or run lockstep bench step");
  Part found{.batch = steps.learner().rounds.step_samples};
  for (int64_t step = 1; step <= kWarmUp + wanted.steps; ++step) {
    const auto begin = Clock::now();
    steps.take();
    steps.read_pending();
    found.losses.push_back(steps.losses().last());
    if (step > kWarmUp) found.seconds.push_back(since(begin));
    // without the old buckets, which DDP has replaced and gloo may still hold
    if (step == kWarmUp) memory.restart();
  }
  team.sum(found.losses);
  for (auto& loss : found.losses) {
    loss /= team.world();
    if (!std::isfinite(loss))
      throw InputError("a loss is not a number", wanted.config,
                       "use a config that `lockstep train` can train");
  }
  team.max(found.seconds);
  const auto own = memory.peaks();
  for (const auto& text : team.all_gather(format("{}", own[0]))) found.peaks.push_back(std::stoll(text));
  if (way != "ddp") found.peaks = own;
  return found;
}

Part wide_head(bool loss_inside, int64_t devices) {
  const auto places = devices_like(visible_devices().front(), static_cast<int>(devices));
  parallel::DeviceMemory memory(places);
  torch::manual_seed(0);
  Part found;
  found.batch = kSamples;
  const auto model = data_parallel(Head(), places);
  const auto input = torch::randn({kSamples, kInputs}).to(places.front());
  const auto target = torch::randint(kOutputs, {kSamples}).to(places.front());
  for (int step = 0; step < 3; ++step) {  // the first takes its devices one by one
    memory.restart();
    model->zero_grad();
    const auto loss =
        loss_inside ? model->loss(input, target, loss_of) : loss_of(model->forward(input), target);
    loss.backward();
    found.losses.push_back(loss.item<double>());
  }
  found.peaks = memory.peaks();
  return found;
}

// --- all ways, in turn ---

constexpr double kRounding = 1e-4;  // of a loss, after a few steps
// The workshop's notebook "0.24 Distributed Training: DataParallel vs DistributedDataParallel" (F. Hirwa
// Nshuti): five epochs of MNIST, batches of 256, two GPUs.
constexpr double kNotebookDp = 18.31, kNotebookDdp = 6.09;
constexpr std::chrono::minutes kLongest{10};  // one run

// Starts the processes of a way, waits for all, and returns the first one's result. Throws the error of any.
Part run_way(const std::string& way, const DpVsDdpBench& wanted) {
  const int64_t world = way == "ddp" ? wanted.devices : 1;
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string(), "bench",
                                    "dp-vs-ddp", "--part", way};
  words.insert(words.end(), wanted.words.begin(), wanted.words.end());
  const auto port = std::to_string(comm::listen_on("127.0.0.1").port);  // a free one
  std::vector<std::optional<std::string>> answers(static_cast<size_t>(world));
  std::vector<std::jthread> threads;
  for (int64_t rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      std::vector<std::string> settings;  // what torchrun sets for each process of one node
      if (way == "ddp")
        settings = {format("RANK={}", rank),
                    format("LOCAL_RANK={}", rank),
                    format("WORLD_SIZE={}", world),
                    format("LOCAL_WORLD_SIZE={}", world),
                    "GROUP_RANK=0",
                    "MASTER_ADDR=127.0.0.1",
                    "MASTER_PORT=" + port,
                    "TORCHELASTIC_RUN_ID=bench",
                    "TORCHELASTIC_RESTART_COUNT=0"};
      answers[static_cast<size_t>(rank)] = base::capture(words, kLongest, settings);
    });
  threads.clear();  // joins
  for (const auto& answer : answers)
    if (answer) base::unpack_outcome(*answer);  // throws its error
  if (!std::ranges::all_of(answers, [](const auto& answer) { return answer.has_value(); }))
    throw Error("a process of '" + way + "' failed or took too long", "bench dp-vs-ddp",
                "try the same config with `lockstep train`");
  return nlohmann::json::parse(base::unpack_outcome(*answers.front())).get<Part>();
}

void verify(const std::string& way, const Part& found, const Part& other) {
  bool alike = found.losses.size() == other.losses.size() && found.batch == other.batch;
  for (size_t i = 0; alike && i < found.losses.size(); ++i) {
    const double scale = std::max(1.0, std::abs(other.losses[i]));
    if (std::abs(found.losses[i] - other.losses[i]) <= kRounding * scale) continue;
    throw Error(
        format("step {}: the loss of '{}' is {}, but DDP's {}", i + 1, way, found.losses[i], other.losses[i]),
        "bench dp-vs-ddp",
        "use a model without Dropout and BatchNorm, whose numbers differ, and set data.drop_last_batch=true "
        "if the samples do not divide evenly");
  }
  if (!alike) throw Error("'" + way + "' took a different number of steps than DDP", "bench dp-vs-ddp");
}

struct Results {
  std::map<std::string, std::vector<double>> seconds;  // a step, a run
  std::map<std::string, Part> last;
};

Results measure_runs(const DpVsDdpBench& wanted) {
  Results results;
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

// --- the result ---

std::string mib_of(const std::vector<int64_t>& bytes) {
  std::vector<std::string> parts;
  for (const auto number : bytes) parts.push_back(format("{:.1f}", static_cast<double>(number) / (1 << 20)));
  return base::join(parts, " | ");
}

// Says which of the two is faster.
std::string against(double times_as_long) {
  if (format("{:.2f}", times_as_long) == "1.00") return "-";
  return times_as_long > 1 ? format("{:.2f}x slower", times_as_long)
                           : format("{:.2f}x faster", 1 / times_as_long);
}

report::Table speed_rows(const Results& results) {
  report::Table rows = {
      {"way", "ms per step: min", "median", "max", "samples/s", "against ddp", "peak MiB per device"}};
  const double base = spread_of(results.seconds.at("ddp")).median;
  for (const auto& way : kWays) {
    const auto& found = results.last.at(way);
    const auto times = spread_of(results.seconds.at(way));
    rows.push_back({way, format("{:.2f}", 1e3 * times.least), format("{:.2f}", 1e3 * times.median),
                    format("{:.2f}", 1e3 * times.most),
                    format("{:.0f}", static_cast<double>(found.batch) / times.median),
                    against(times.median / base), mib_of(found.peaks)});
  }
  rows.push_back({"a notebook's dp, 2 GPUs", "", format("{:.2f} s in all", kNotebookDp), "", "",
                  against(kNotebookDp / kNotebookDdp), "not reported"});
  rows.push_back(
      {"a notebook's ddp, 2 GPUs", "", format("{:.2f} s in all", kNotebookDdp), "", "", "-", "not reported"});
  return rows;
}

report::Page page_of(const Results& results, const std::string& facts) {
  report::Page page("DataParallel against DistributedDataParallel");
  page.section("A step");
  page.text(facts + "\n");
  page.table(speed_rows(results));
  std::vector<report::Bar> speeds, memory;
  for (const auto& way : kWays) speeds.push_back({way, {spread_of(results.seconds.at(way)).median}});
  page.bars("A step", "median (s)", {"time"}, speeds);
  page.section("Memory of each device");
  report::Table wide = {{"64 -> 20000 outputs, batch 256", "peak MiB per device"}};
  for (const auto& way : kWide) {
    const auto& peaks = results.last.at(way).peaks;
    wide.push_back({way, mib_of(peaks)});
    for (size_t i = 0; i < peaks.size(); ++i)
      memory.push_back({format("{} {}", way == kWide[0] ? "gathered" : "loss inside", i),
                        {static_cast<double>(peaks[i])}});
  }
  page.table(wide);
  page.bars("Peak memory per device, wide outputs", "memory (bytes)", {"memory"}, memory);
  return page;
}

}  // namespace

void dp_vs_ddp(const DpVsDdpBench& wanted) {
  const Team alone({}, {}, at::kCPU);
  check_out(wanted.out);
  check_place(alone, wanted.out);
  const auto weights = settings_of(wanted.config, wanted.sets).task;
  if (weights.weighs_classes())  // the mean of the ranks' weighted means is not that of all samples
    throw InputError(format("with task.class_weights {} DDP's loss differs from that of one process",
                            weights.class_weights),
                     wanted.config, "compare without them: --set task.class_weights=none");
  const auto results = measure_runs(wanted);
  const auto& ddp = results.last.at("ddp");
  const auto facts = format(
      "{}: {} devices, {} samples per step. {} of each variant, {} after warm-up. Losses of {} steps agree.",
      wanted.config, wanted.devices, ddp.batch, base::counted(wanted.repeats, "run"),
      base::counted(wanted.steps, "step"), ddp.losses.size());
  report_on_first(alone, wanted.out, page_of(results, facts));
}

std::string dp_vs_ddp_part(const std::string& way, const DpVsDdpBench& wanted) {
  return base::pack_outcome([&] {
    const auto found =
        way.starts_with("wide") ? wide_head(way == kWide[1], wanted.devices) : train_part(way, wanted);
    return nlohmann::json(found).dump();
  });
}

}  // namespace lockstep::bench
