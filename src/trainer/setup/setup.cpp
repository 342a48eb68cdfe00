#include "trainer/setup/setup.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/memory.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/connect.h"
#include "lockstep/data/resident_set.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/parallel/session.h"
#include "lockstep/tasks/collective/sets.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"
#include "trainer/config/load.h"
#include "trainer/config/value.h"
#include "trainer/config/yaml.h"
#include "trainer/modes/autocast.h"
#include "trainer/modes/model.h"
#include "trainer/provoke/provoke.h"

namespace lockstep::train {
namespace {

// What does not fit together is found out at the start: a model's first samples, its loss and its metrics.

/// Shows a model of the task's, made for this alone, a few samples: the model that is trained stays
/// untouched, and the caller seeds the generator again. InputError where the model does not take them, or the
/// loss or the metrics do not take what it gives.
void try_model(const Setup& setup);

constexpr int64_t kSamples = 2;

/// The first samples as a set of their own, so that metrics size themselves by it.
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

/// Of libtorch's pages the line that says what is wrong; TorchScript's own comes last.
std::string reason_of(const std::string& text) {
  const auto script = text.rfind("RuntimeError: ");
  const auto line = script == std::string::npos ? text : text.substr(script);
  return line.substr(0, line.find('\n'));
}

std::string model_key(const Settings& settings) {
  return settings.model.path.empty() ? "model.name, task.name" : "model.path: " + settings.model.path;
}

/// Runs one part of a step; whatever it throws is the input's fault, for no step has been taken yet.
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

std::string shape_text(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

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
  const Autocast scope(device.type(), autocast_type(settings.train.precision));
  const auto output = tried("the model does not take the task's samples of " + shape_text(batch.input),
                            settings, [&] { return net->forward(batch.input.to(device)); });
  tried("the task does not take the model's output of " + shape_text(output), settings, [&] {
    if (setup.data.eval)
      setup.task->metrics(few)->add(output.to(torch::kCPU), batch.target, batch.indices, {});
    LossOptions loss;
    if (setup.data.class_weights.defined()) loss.class_weights = setup.data.class_weights.to(output.device());
    setup.task->loss(output, batch.target.to(output.device()), loss);
  });
}

class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

// What is libtorch's default is left alone: its own variables, or the program, may have said otherwise.
void choose_arithmetic(const TrainSettings& train) {
  Silence silence;  // libtorch 2.9 and later have another name for these, and still obey them
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
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

namespace {

// The config's text and the variables that it and the command line mention, as JSON.
std::string read_for_all(const std::string& path, const std::vector<std::string>& sets,
                         const launch::Environment& environment) {
  const auto read = config::read_config_text(path);
  config::parse_yaml(read.text, read.name);  // refuses what is not UTF-8, which JSON cannot hold
  auto variables = nlohmann::json::object();
  for (const std::string& name : config::names_in_braces(read.text + base::join(sets, "\n"))) {
    const auto variable = environment.find(name);
    if (variable == environment.end()) continue;
    if (base::invalid_utf8(variable->second))
      throw InputError("an environment variable is not UTF-8 text", name, "set it to plain text");
    variables[name] = variable->second;
  }
  return base::as_line(nlohmann::json{{"name", read.name}, {"text", read.text}, {"variables", variables}});
}

}  // namespace

JobConfig load_for_job(const launch::Runtime& runtime, const std::string& path,
                       const std::vector<std::string>& sets) {
  const launch::Environment own = launch::current_environment();
  const auto read = [&] {
    const auto handed = own.find(kHandedConfig);
    return handed == own.end() ? read_for_all(path, sets, own)
                               : base::read_text("/proc/self/fd/" + handed->second);
  };
  std::string shared;
  if (!runtime.has_mpi()) {
    shared = read();
  } else {
    const auto outcome = runtime.job().rank == 0 ? base::pack_outcome(read) : "";
    shared = base::unpack_outcome(runtime.broadcast(outcome));
  }
  const auto parts = nlohmann::json::parse(shared);
  const auto name = parts["name"].get<std::string>(), text = parts["text"].get<std::string>();
  const auto variables = parts["variables"].get<launch::Environment>();
  config::Loaded loaded = config::load_settings(text, name, sets, variables);
  // a node's own variables win here, rank 0's fill the gaps: nothing that loaded above can fail now
  launch::Environment here = own;
  here.insert(variables.begin(), variables.end());
  loaded.settings.data.stage = config::load_settings(text, name, sets, here).settings.data.stage;
  return {std::move(loaded), shared};
}

namespace {

constexpr int64_t kTracedSteps = 100;  // of --trace

// The launcher must be known before the config can be read over MPI, so it is looked for in --set first.
std::string launcher_of(const Command& command) {
  constexpr const char* kKey = "launch.launcher=";
  std::string launcher = command.launcher;
  if (!launcher.empty() && launcher != "auto") return launcher;
  for (const auto& set : command.sets) {
    if (set.rfind(kKey, 0) == 0) launcher = set.substr(std::char_traits<char>::length(kKey));
  }
  return launcher.empty() ? "auto" : launcher;
}

// launch.launcher, where each rank reads the file for itself: it decides whether there is MPI at all.
std::string launcher_in(const std::string& path, const std::vector<std::string>& sets) {
  const config::ConfigText read = config::read_config_text(path);
  return config::load_settings(read.text, read.name, sets, launch::current_environment())
      .settings.launch.launcher;
}

// As --launcher does, launch.launcher decides whether there is MPI at all. Where the environment speaks of
// MPI, only rank 0 opens the file, and the others learn of the choice when MPI is up.
std::unique_ptr<launch::Runtime> make_runtime(const Command& command) {
  const auto asked = launcher_of(command);
  const auto environment = launch::current_environment();
  const bool unknown = asked == "auto" && !launch::wants_mpi(environment) &&
                       launch::detect_launcher(environment) != "as_world";
  return std::make_unique<launch::Runtime>(unknown ? launcher_in(command.config, command.sets) : asked,
                                           launch::RuntimeOptions{.alone_in_mpi = true});
}

void obey_launcher(launch::Runtime& runtime, const Settings& settings, const Command& command) {
  const auto& wanted = settings.launch.launcher;
  if (wanted == "auto" || wanted == runtime.job().launcher || launcher_of(command) != "auto") return;
  runtime.set_launcher(wanted);
}

// What a run was trained on need not be here; what is asked for now stays.
void forget_gpus(LaunchOptions& options, const std::vector<std::string>& sets) {
  const auto is_asked = [&sets](const char* key) {
    return std::any_of(sets.begin(), sets.end(), [key](const auto& set) { return set.starts_with(key); });
  };
  if (options.device == "cuda" && !is_asked("launch.device=")) options.device = "auto";
  if (options.backend == "nccl" && !is_asked("launch.backend=")) options.backend = "auto";
}

// What is at a library's path on one node may be an older build than on another.
void add_libraries(comm::Facts& facts, const Settings& settings) {
  for (const TableRow* row : config::chosen_rows(settings)) {
    if (!row->library.empty())
      facts.emplace_back("the library of " + row->kind + " " + row->name,
                         base::sha256_of_file(row->library).substr(0, 16));
  }
}

// What has to be the same on all ranks of a run, key by key; not where each finds its files.
comm::Facts facts_of(const Settings& settings) {
  comm::Facts facts;
  for (const config::Key& key : config::keys()) {
    if (!key.rules.own_path) facts.emplace_back(key.path, config::value_text(key, settings));
  }
  return facts;
}

comm::Facts all_facts(const Settings& settings, const Command& command) {
  comm::Facts facts = {{"the program", command.program}};
  facts.insert(facts.end(), command.must_match.begin(), command.must_match.end());
  const auto keys = facts_of(settings);
  facts.insert(facts.end(), keys.begin(), keys.end());
  add_libraries(facts, settings);
  return facts;
}

// `auto` is decided once, and the folder's config says how.
void resolve(LaunchOptions& options, const std::string& backend, const launch::DeviceChoice& device) {
  options.device = device.is_cuda() ? "cuda" : "cpu";
  if (options.backend == "auto") options.backend = backend;
}

// Those of each rank, as the model's stages take them; a model that reads no model.devices has one.
launch::OwnGpus gpus_for(const Settings& settings) {
  const auto& model = settings.model;
  if (!config::may_be_used(*config::find_key("model.devices"), settings)) return {};
  if (model.devices.empty() && config::is_read("model.devices", settings)) return {0, 1};  // a stage each
  return model.devices;
}

void open_session(Setup& setup, std::unique_ptr<launch::Runtime> runtime, config::Loaded& loaded,
                  const Command& command) {
  const auto facts = [&, joined = runtime.get()](const launch::DeviceChoice& device) {
    config::load_libraries(loaded);  // here what one rank cannot load is an error of all
    setup.backend = comm::backend_for(*joined, loaded.settings.launch, device.is_cuda());
    resolve(loaded.settings.launch, setup.backend, device);
    return all_facts(loaded.settings, command);
  };
  const auto& settings = loaded.settings;
  const parallel::SessionSetup joining{.options = settings.launch,
                                       .grouped = settings.train.mode == TrainMode::ddp,
                                       .gpus = gpus_for(settings),
                                       .threads = threads_of_rank(settings.train, command.whole_model),
                                       .facts = facts};
  setup.session = std::make_unique<Session>(std::move(runtime), joining);
  const auto& group = setup.session->group();
  if (setup.backend == "shared" && group) setup.backend = group->getBackend(c10::kCPU)->getBackendName();
}

std::unique_ptr<Mesh> mesh_for(const Session& session, const ParallelSettings& parallel) {
  const MeshShape shape = {.data = static_cast<int>(parallel.data),
                           .tensor = static_cast<int>(parallel.tensor),
                           .pipeline = static_cast<int>(parallel.pipeline)};
  return std::make_unique<Mesh>(session, shape);
}

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

}  // namespace

StartedJob begin_job(const Command& command) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of the write, like a full disk
  auto runtime = make_runtime(command);
  auto [loaded, shared] = load_for_job(*runtime, command.config, command.sets);
  if (command.trace && loaded.settings.train.trace == 0) loaded.settings.train.trace = kTracedSteps;
  if (!command.whole_model) prepare_fault(loaded);
  config::check_conflicts(loaded);  // --trace and a fault change settings
  if (!command.whole_model) choose_sums(loaded.settings);
  obey_launcher(*runtime, loaded.settings, command);
  return {std::move(runtime), std::move(loaded), std::move(shared)};
}

Setup join_job(const Command& command, StartedJob begun) {
  Setup setup;
  auto& loaded = begun.loaded;
  for (const auto& warning : loaded.warnings) log::warning(warning);
  if (command.elsewhere) forget_gpus(loaded.settings.launch, command.sets);
  choose_arithmetic(loaded.settings.train);
  open_session(setup, std::move(begun.runtime), loaded, command);
  for (const auto& warning : loaded.warnings) log::warning(warning);  // of the libraries
  setup.settings = std::move(loaded.settings);
  setup.program = command.program;
  setup.team = &setup.session->team();
  setup.config = config::to_yaml(setup.settings);
  if (command.whole_model || setup.settings.train.mode != TrainMode::ddp) setup.settings.parallel = {};
  check_mode(setup.settings, setup.team->job().world, setup.team->device());
  setup.mesh = mesh_for(*setup.session, setup.settings.parallel);
  setup.team->together([&] { setup.task = make_task(setup.settings.for_task()); });
  return setup;
}

Setup join_job(const Command& command) {
  return join_job(command, begin_job(command));
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
      log::info(format("{} for {} min", work, minutes));
    }
  });
}

void load_data(Setup& setup) {
  const auto share = tasks::node_share(*setup.team);
  const auto minutes = count_minutes("loading the data set of task " + setup.settings.task.name);
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

void hold_on_device(Setup& setup) {
  if (!setup.settings.data.resident) return;
  const auto device = setup.team->device();
  std::shared_ptr<const data::ResidentSet> resident;
  setup.team->together([&] {
    const auto whole = setup.data.train->whole();
    if (!whole)
      throw InputError(format("data.resident: task {} makes its samples on demand", setup.settings.task.name),
                       "data.resident",
                       "set data.resident to false, or let the task's set override Dataset::whole");
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

}  // namespace lockstep::train
