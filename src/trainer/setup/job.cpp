// From a command line to ranks that have met: the config, the processes, the session.
#include "trainer/setup/setup.h"

#include <sys/mman.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/rendezvous/join.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/cpus.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/launch/process/spawn_ranks.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"
#include "trainer/config/yaml.h"
#include "trainer/modes/model.h"
#include "trainer/provoke/provoke.h"

namespace lockstep::train {
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
  for (const auto& set : command.sets)
    if (set.rfind(kKey, 0) == 0) launcher = set.substr(std::char_traits<char>::length(kKey));
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
                                           launch::RuntimeOptions{.only_mpi_user = true});
}

void apply_launcher(launch::Runtime& runtime, const Settings& settings, const Command& command) {
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
  for (const TableRow* row : config::chosen_rows(settings))
    if (!row->library.empty())
      facts.emplace_back("the library of " + row->kind + " " + row->name,
                         base::sha256_of_file(row->library).substr(0, 16));
}

// What has to be the same on all ranks of a run, key by key; not where each finds its files.
comm::Facts facts_of(const Settings& settings) {
  comm::Facts facts;
  for (const config::Key& key : config::keys())
    if (!key.rules.own_path) facts.emplace_back(key.path, config::value_text(key, settings));
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

}  // namespace

StartedJob begin_job(const Command& command) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of the write, like a full disk
  auto runtime = make_runtime(command);
  auto [loaded, shared] = load_for_job(*runtime, command.config, command.sets);
  if (command.trace && loaded.settings.train.trace == 0) loaded.settings.train.trace = kTracedSteps;
  if (!command.whole_model) prepare_fault(loaded);
  config::check_conflicts(loaded);  // --trace and a fault change settings
  if (!command.whole_model) choose_sums(loaded.settings);
  apply_launcher(*runtime, loaded.settings, command);
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

// train.as_world: a process starts the ranks that it runs.

namespace {

// A name for the file where the ranks meet.
std::string rendezvous_name(const launch::Runtime& runtime) {
  if (!runtime.has_met()) return "";
  return runtime.broadcast(format("as-world-{}-{}", ::getpid(), base::random_word()));
}

// Gone when the ranks have met; a rank that ended before may have left it.
void remove_rendezvous(Job job, int world, const std::string& rendezvous) {
  if (rendezvous.empty() || job.rank != 0) return;
  auto environment = launch::current_environment();
  environment["LOCKSTEP_RENDEZVOUS"] = rendezvous;
  job.world = world;
  job.launcher = "as_world";
  std::error_code none;
  std::filesystem::remove(comm::plan_rendezvous(environment, job).path, none);
}

// What the ranks are made of, for those who start from this process: over MPI they have no other way to it.
base::Descriptor inherited_config(const std::string& text) {
  base::Descriptor file(::memfd_create("lockstep-config", 0));
  if (file && base::write_all(file.number(), text)) return file;
  throw Error(format("cannot pass the config to the ranks: {}", std::strerror(errno)), "train.as_world",
              "check the free memory of this node");
}

// A mask that a launcher gave for one rank is for all of the block.
void warn_of_few_cores(int ranks) {
  const auto own = launch::own_cpus();
  if (own.cores >= std::min(ranks, own.machine_cores)) return;
  log::warning(
      format("{} ranks of this process share the {} that it is bound to, of {}; bind it to more "
             "(mpirun --bind-to none, srun --cpus-per-task)",
             ranks, base::counted(own.cores, "core"), own.machine_cores));
}

// Each would start other ranks, and wait for those that no process starts.
void compare_worlds(const launch::Runtime& runtime, int world) {
  if (!runtime.has_met()) return;
  const auto all = runtime.all_gather(std::to_string(world));
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  throw InputError(
      format("train.as_world is {} for process 0 and {} for process {}", all[0], *other, other - all.begin()),
      "train.as_world", "give all processes the same config and --set");
}

void refuse_other_world(const Job& job, int world) {
  if (job.launcher != "as_world" || job.world == world) return;
  throw InputError(format("train.as_world: {} cannot be combined with --ranks {}", world, job.world),
                   "train.as_world", "omit --ranks");
}

}  // namespace

void choose_sums(Settings& settings) {
  if (settings.train.as_world == 0) return;
  auto& launch = settings.launch;
  if (launch.backend == "auto") launch.backend = "shared";
  if (launch.device != "auto") return;
  const bool may_be_staged = !launch.has_algorithm() && settings.parallel.pipeline == 1;
  const bool gpus = may_be_staged && launch::count_gpus(launch::current_environment()).count > 0;
  launch.device = gpus ? "cuda" : "cpu";
}

bool spawns_ranks(const StartedJob& begun) {
  const int world = static_cast<int>(begun.loaded.settings.train.as_world);
  compare_worlds(*begun.runtime, world);
  if (world == 0) return false;
  const auto& job = begun.runtime->job();
  refuse_other_world(job, world);
  return job.world != world;
}

int spawn_ranks(StartedJob begun) {
  const int world = static_cast<int>(begun.loaded.settings.train.as_world);
  const Job job = begun.runtime->job();
  const auto rendezvous = rendezvous_name(*begun.runtime);
  const int own = launch::block_of(job.rank, job.world, world).count;
  const auto config = inherited_config(begun.shared);
  begun.runtime.reset();  // MPI is for one process a rank
  log::info(format("train.as_world: {} ranks on {} process{} (ranks per process: {})", world, job.world,
                   job.world == 1 ? "" : "es", launch::blocks_text(job.world, world)));
  warn_of_few_cores(own * threads_of_rank(begun.loaded.settings.train, false));
  std::vector<std::string> settings = {format("{}={}", kHandedConfig, config.number())};
  if (!rendezvous.empty()) settings.push_back("LOCKSTEP_RENDEZVOUS=" + rendezvous);
  const int status = launch::spawn_ranks(job, world, settings);
  remove_rendezvous(job, world, rendezvous);
  return status;
}

int start_ranks(const Job& alone, int ranks) {
  const auto rendezvous = format("ranks-{}-{}", ::getpid(), base::random_word());
  const int status = launch::spawn_ranks(alone, ranks, {"LOCKSTEP_RENDEZVOUS=" + rendezvous});
  remove_rendezvous(alone, ranks, rendezvous);
  return status;
}

int threads_of_rank(const TrainSettings& train, bool trained) {
  if (train.threads > 0) return static_cast<int>(train.threads);
  return train.as_world > 0 && !trained ? 1 : 0;
}

}  // namespace lockstep::train
