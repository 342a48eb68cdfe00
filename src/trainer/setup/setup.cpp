// What a run trains: the data, the model, and how it computes.
#include "trainer/setup/setup.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/memory.h"
#include "lockstep/data/resident_set.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/tasks/collective/sets.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"
#include "trainer/modes/model.h"
#include "trainer/provoke/provoke.h"
#include "trainer/run_folder/console.h"

namespace lockstep::train {
namespace {

std::shared_ptr<const data::ResidentSet> moved_to(at::Device device, const DatasetTensors& set) {
  try {
    return std::make_shared<data::ResidentSet>(set, device);
  } catch (const std::exception& error) {
    if (!base::is_out_of_memory(error)) throw;
    throw Error(format("the training set of {:.1f} MB does not fit into the memory of {}",
                       static_cast<double>(set.samples.nbytes()) / (1 << 20), device.str()),
                "data.resident", "set data.resident to false: batches are then made on the CPU");
  }
}

// Each node reads for itself, and a sample's number is to mean the same everywhere.
void check_identity(const Setup& setup) {
  if (setup.data.identity.empty()) return;
  const auto all = setup.team->all_gather(setup.data.identity);
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  throw InputError(format("rank {} found different samples than rank 0", other - all.begin()),
                   "data.root: " + setup.settings.data.root, "use identical data files on all nodes");
}

// What the config left open is what the data made of it: so it is in the run's config from now on.
void fill_open_keys(Settings& settings, const TaskData& data) {
  auto& task = settings.task;
  if (config::is_read("task.label", settings) && task.label.empty()) task.label = data.label;
  if (config::is_read("task.normalize_label", settings) && data.regression && task.normalize_label == "auto")
    task.normalize_label = data.label_scale ? "standard" : "none";
}

// The log goes on while a load does.
std::jthread count_minutes(const std::string& work) {
  return std::jthread([work](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    for (int minutes = 1;; ++minutes) {
      stopped.wait_for(lock, stop, std::chrono::minutes(1), [] { return false; });
      if (stop.stop_requested()) return;
      log::info(format("still {} ({} min so far)", work, minutes));
    }
  });
}

}  // namespace

void load_data(Setup& setup) {
  const auto share = tasks::node_share(*setup.team);
  const auto minutes = count_minutes("loading the data of task " + setup.settings.task.name);
  setup.team->together([&] {
    setup.data = base::with_memory_for("the data set of task " + setup.settings.task.name,
                                       [&] { return setup.task->data(setup.settings.for_task(), share); });
  });
  check_identity(setup);
  fill_open_keys(setup.settings, setup.data);
  setup.config = config::to_yaml(setup.settings);
  for (const auto& note : setup.data.notes) log::info(note);
  for (const auto& warning : setup.data.warnings) log::warning(warning);
}

void move_to_device(Setup& setup) {
  if (!setup.settings.data.resident) return;
  const auto device = setup.team->device();
  std::shared_ptr<const data::ResidentSet> resident;
  setup.team->together([&] {
    const auto whole = setup.data.train->whole();
    if (!whole)
      throw InputError(format("data.resident: task {} makes its samples on demand", setup.settings.task.name),
                       "data.resident",
                       "set data.resident to false, or override Dataset::whole in the task's data set");
    resident = moved_to(device, *whole);
  });
  setup.data.train = resident;
  log::info(format("the training set is resident on {}: {:.1f} MB", device.str(),
                   static_cast<double>(resident->bytes()) / (1 << 20)));
}

bool load_evaluation(Setup& setup) {
  if (setup.settings.task.weighs_classes() && !setup.data.class_weights.defined()) return false;
  const auto share = tasks::node_share(*setup.team);
  setup.team->together([&] {
    setup.data.eval = base::with_memory_for("the evaluation set of task " + setup.settings.task.name, [&] {
      return setup.task->evaluation(setup.settings.for_task(), setup.data, share);
    });
  });
  if (!setup.data.eval) return false;
  setup.data.identity = std::to_string(setup.data.eval->size());
  check_identity(setup);
  return true;
}

Setup set_up(const Command& command, StartedJob begun) {
  auto setup = join_job(command, std::move(begun));
  load_data(setup);
  return setup;
}

Setup set_up(const Command& command) {
  return set_up(command, begin_job(command));
}

namespace {

// What does not fit together is found out at the start: a model's first samples, its loss and its metrics.

constexpr int64_t kSamples = 2;

// The first samples as a set of their own, so that metrics size themselves by it.
class FirstSamples : public Dataset {
 public:
  explicit FirstSamples(std::shared_ptr<const Dataset> all) : all_(std::move(all)) {}
  int64_t size() const override { return std::min(kSamples, all_->size()); }
  Batch get(at::ArrayRef<int64_t> indices, bool pinned) const override {
    auto batch = all_->get(indices, pinned);
    batch.indices = indices.vec();
    return batch;
  }

 private:
  std::shared_ptr<const Dataset> all_;
};

// Of libtorch's pages the line that says what is wrong; TorchScript's own comes last.
std::string reason_of(const std::string& text) {
  const auto script = text.rfind("RuntimeError: ");
  const auto line = script == std::string::npos ? text : text.substr(script);
  return line.substr(0, line.find('\n'));
}

std::string model_key(const Settings& settings) {
  return settings.model.path.empty() ? "model.name, task.name" : "model.path: " + settings.model.path;
}

// Runs one part of a step; whatever it throws is the input's fault, for no step has been taken yet.
template <class Part>
auto tried(const std::string& what, const Settings& settings, Part&& part) {
  try {
    return part();
  } catch (const Error& error) {
    throw InputError(error.what(), error.where().empty() ? model_key(settings) : error.where(), error.hint());
  } catch (const std::exception& error) {
    throw InputError(what + ": " + reason_of(error.what()), model_key(settings),
                     "use a model for this task's samples and classes, or set task.classes");
  }
}

// Shows a few samples to a model that is made for this alone. The trained model stays untouched, and the
// caller seeds the generator again. InputError if the model does not take them, or if the loss or the metrics
// do not take its output.
void try_model(const Setup& setup) {
  const auto& set = setup.data.train ? setup.data.train : setup.data.eval;
  if (!set || set->size() == 0) return;
  const torch::NoGradGuard no_grad;
  const auto& settings = setup.settings;
  const auto device = setup.team->device();
  auto few = setup.data;
  few.eval = std::make_shared<FirstSamples>(set);
  std::vector<int64_t> indices(static_cast<size_t>(few.eval->size()));
  std::iota(indices.begin(), indices.end(), 0);
  const auto batch = few.eval->get(indices);

  const auto net = setup.task->model(settings.for_task(), setup.data);
  net->to(device);
  net->eval();
  const Autocast scope(device.type(), settings.train.precision);
  const auto output =
      tried("the model does not accept the task's samples of " + c10::str(batch.input.sizes()), settings,
            [&] { return net->forward(batch.input.to(device)); });
  tried("the task does not accept the model's output of " + c10::str(output.sizes()), settings, [&] {
    if (setup.data.eval)
      setup.task->metrics(few)->add(output.to(torch::kCPU), batch.target, batch.indices, {});
    setup.task->loss(output, batch.target.to(output.device()), loss_options(setup.data, output.device()));
  });
}

class IgnoreWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

// What is libtorch's default is left alone: its own variables, or the program, may have said otherwise.
void choose_arithmetic(const TrainSettings& train) {
  IgnoreWarnings ignore;  // libtorch 2.9 and later have another name for these, and still obey them
  const c10::WarningUtils::WarningHandlerGuard guard(&ignore);
  auto& context = at::globalContext();
  if (train.tf32 != Tf32::convolutions) {
    context.setAllowTF32CuDNN(train.tf32 == Tf32::all);
    context.setAllowTF32CuBLAS(train.tf32 == Tf32::all);
  }
  if (train.cudnn_benchmark) context.setBenchmarkCuDNN(true);
  if (!train.deterministic) return;
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // cuBLAS has its own condition
}

LossOptions loss_options(const TaskData& data, at::Device device) {
  LossOptions options;
  if (data.class_weights.defined()) options.class_weights = data.class_weights.to(device);
  return options;
}

std::shared_ptr<Net> task_model(const Setup& setup) {
  auto net = setup.task->model(setup.settings.for_task(), setup.data);
  if (setup.settings.train.kernels == KernelChoice::fast) net->use_own_kernels();
  return net;
}

std::shared_ptr<Net> seeded_model(const Setup& setup) {
  const auto seed = static_cast<uint64_t>(setup.settings.run.seed);
  const LayersGuard layers(layers_for(*setup.mesh, setup.settings.parallel));
  std::shared_ptr<Net> net;
  setup.team->together([&] {
    torch::manual_seed(seed);
    try_model(setup);
    torch::manual_seed(seed);
    net = task_model(setup);
  });
  const auto* fault = injected_fault(setup.settings);
  return fault && fault->change ? fault->change(std::move(net)) : net;
}

// train.layout: auto measures both layouts on all ranks and takes the faster one.

namespace {

bool is_worth_measuring(const Setup& setup) {
  const auto& train = setup.data.train;
  if (!train || train->size() == 0 || !setup.mesh->is_plain()) return false;
  return train->get(std::vector<int64_t>{0}).input.dim() == 4;
}

// The least seconds that a forward and a backward of the first batch take, with a model made for this alone.
double seconds_of_batch(const Setup& setup, bool last) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 4;  // the first one pays for libtorch's start
  const auto& settings = setup.settings;
  const auto device = setup.team->device();
  std::vector<int64_t> indices(
      static_cast<size_t>(std::min(settings.data.batch_size, setup.data.train->size())));
  std::iota(indices.begin(), indices.end(), 0);
  const auto batch = setup.data.train->get(indices);
  auto input = batch.input.to(device);
  if (last) input = input.contiguous(at::MemoryFormat::ChannelsLast);
  const auto target = batch.target.to(device);
  const auto options = loss_options(setup.data, device);
  const auto net = task_model(setup);
  if (last) to_channels_last(*net);
  net->to(device);
  net->train();
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    at::Tensor loss;
    {
      const Autocast scope(device.type(), settings.train.precision);
      loss = setup.task->loss(net->forward(input), target, options);
    }
    loss.backward();
    loss.item<float>();  // and whatever a GPU still does
    for (auto& parameter : net->parameters()) parameter.mutable_grad().reset();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return least;
}

ImageLayout measured_layout(const Setup& setup) {
  using enum ImageLayout;
  if (!is_worth_measuring(setup)) return nchw;
  std::vector<double> both(2);
  setup.team->together([&] { both = {seconds_of_batch(setup, false), seconds_of_batch(setup, true)}; });
  setup.team->sum(both);
  const double ranks = setup.team->world();
  const bool last = both[1] < both[0];
  const auto time = [&](double seconds) { return run_folder::step_time(seconds / ranks); };
  log::info(format("train.layout: auto chose {}: {} per batch, against {} in {}",
                   word_of(last ? channels_last : nchw), time(std::min(both[0], both[1])),
                   time(std::max(both[0], both[1])), word_of(last ? nchw : channels_last)));
  return last ? channels_last : nchw;
}

}  // namespace

void choose_layout(Setup& setup) {
  auto& layout = setup.settings.train.layout;
  if (layout != ImageLayout::automatic) return;
  layout = measured_layout(setup);
  setup.config = config::to_yaml(setup.settings);
}

}  // namespace lockstep::train
