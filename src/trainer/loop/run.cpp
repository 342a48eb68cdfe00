#include "trainer/loop/run.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/collective/resume_state.h"
#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/launch/process/stop_signal.h"
#include "lockstep/launch/scheduler.h"
#include "trainer/config/load.h"
#include "trainer/loop/checkpoints.h"
#include "trainer/loop/trainer.h"
#include "trainer/modes/model.h"
#include "trainer/run_folder/console.h"
#include "trainer/run_folder/folder.h"
#include "trainer/setup/saved.h"
#include "trainer/setup/setup.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

std::optional<run_folder::RunStatus> status_before(const fs::path& folder) {
  try {
    return run_folder::read_status(folder);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

constexpr const char* kAnotherFile = "name another file with --run-file or LOCKSTEP_RUN_FILE";

// A job script asks `lockstep status` how the run ended, and for that it has to know which run it was.
std::string job_scripts_file() {
  const char* file = std::getenv("LOCKSTEP_RUN_FILE");
  return file ? file : "";
}

// What --resume names: the folder of a run, or a checkpoint to start a new one from. Found before loading.
struct Resume {
  RunAttempt attempt;
  std::optional<SavedCheckpoint> file;
};

Resume find_resume(const Setup& setup, const std::string& asked) {
  const auto& team = *setup.team;
  const bool provokes = setup.settings.train.provokes();
  if (asked.empty() || (provokes && asked == "auto")) return {};
  if (provokes)
    throw InputError("a fault can be injected only into a new run", "--resume", "omit --resume or --provoke");
  const auto named = team.from_first([&] {
    auto path = asked == "auto" ? asked : find_saved(asked);
    return asked == "auto" || fs::is_directory(path) ? path : std::string();
  });
  if (named.empty()) return {{}, read_saved(team, asked)};
  RunAttempt attempt;
  attempt.path = team.from_first([&] {
    auto folder = run_folder::resume_run(setup.settings, named);
    if (!folder) return std::string();
    attempt.before = status_before(folder->path);
    attempt.folder = std::make_shared<run_folder::HeldFolder>(std::move(*folder));
    return attempt.folder->path().string();
  });
  attempt.continues_run = !attempt.path.empty();
  if (attempt.continues_run)
    attempt.number = std::stoll(
        team.from_first([&] { return std::to_string(attempt.before ? attempt.before->attempt + 1 : 2); }));
  return {std::move(attempt), {}};
}

// Before a long load; nothing is made yet.
void check_place(const Setup& setup, const RunAttempt& attempt) {
  setup.team->from_first([&] {
    if (!attempt.continues_run) run_folder::check_run_dir(setup.settings.run);
    if (const auto file = job_scripts_file(); !file.empty()) base::check_output(file, kAnotherFile);
    return std::string();
  });
}

void refuse_idle_early_stop(const Setup& setup) {
  if (setup.settings.train.early_stop == 0 || setup.data.eval->size() > 0) return;
  throw InputError("train.early_stop has no effect: no sample is left for evaluation", "task.eval_fraction",
                   "raise task.eval_fraction, or set train.early_stop to 0");
}

// What a run chooses when it begins it keeps, whatever it would choose today.
void keep_chosen_settings(Setup& setup, const Resume& from) {
  if (from.file) return take_over_from(setup.settings, from.file->tree);
  if (!from.attempt.continues_run) return;
  const auto text = setup.team->from_first([&] { return run_folder::config_text_of(from.attempt.path); });
  config::take_over(config::read_past_config(text, "config.yaml"), setup.settings);
}

// What the ranks hold, and which GPUs' energy this rank reads: ranks may share one. Collective.
void count_devices(const Setup& setup, const TrainedModel& model, RunAttempt& attempt) {
  const auto& team = *setup.team;
  attempt.cores = static_cast<double>(team.world() * setup.session->threads());
  if (!team.device().is_cuda()) return;
  std::vector<std::string> own;
  for (const auto& gpu : checkpoint::gpus_of(team, model.devices()))
    own.push_back(launch::identify_gpu(gpu.index()).bus);
  const auto all = team.all_gather(base::join(own, ","));
  const auto hosts = team.all_gather(team.job().host);
  std::set<std::string> known;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (const auto& bus : base::split(all[rank], ',')) {
      const bool is_new = known.insert(hosts[rank] + bus).second;
      if (is_new && static_cast<int>(rank) == team.rank()) attempt.gpus_read.push_back(bus);
    }
  }
  attempt.gpus = static_cast<double>(known.size());
}

void make_folder(const Setup& setup, RunAttempt& attempt) {
  attempt.path = setup.team->from_first([&] {
    attempt.folder = std::make_shared<run_folder::HeldFolder>(run_folder::new_run(setup.settings));
    return attempt.folder->path().string();
  });
}

// From the newest whole checkpoint of the folder; an earlier attempt that came to none starts again.
void restore_run(Start& start, Learner& learner, const Setup& setup) {
  const auto saved = newest_saved(*setup.team, start.attempt.path);
  if (!saved) {
    log::info("the run has no checkpoint yet: starting from the first step");
    return;
  }
  compare_bits(setup, saved->tree);
  start.state = from_checkpoint(*setup.mesh, saved->tree, saved->path, learner);
  start.attempt.found = saved->path;
  log::info("resuming after step " + std::to_string(start.state.step) + ", from " + saved->path);
}

void start_from(Start& start, Learner& learner, const Setup& setup, const SavedCheckpoint& saved) {
  compare_bits(setup, saved.tree);
  start.state = from_checkpoint(*setup.mesh, saved.tree, saved.path, learner);
  start.state.metrics_offset = 0;  // of another file
  log::info(format("starting after step {} of {}, in a new folder", start.state.step, saved.path));
}

// Nothing in an old folder is touched before it is known that the run can go on there; a job script that has
// not been told of it takes the attempt for refused.
std::unique_ptr<Trainer> make_trainer(const Setup& setup, Learner learner, const Start& start) {
  const auto& folder = start.attempt.folder;
  std::unique_ptr<Trainer> trainer;
  setup.team->together([&] {
    if (folder && start.attempt.continues_run) run_folder::begin_in(folder->path(), setup.settings);
    trainer = std::make_unique<Trainer>(setup, std::move(learner), start);
    if (const auto file = job_scripts_file(); folder && !file.empty())
      base::write_output(file, fs::absolute(folder->path()).string() + "\n", kAnotherFile);
  });
  return trainer;
}

// What a run's bits may be compared with.
void log_all_reduce(const Setup& setup) {
  const auto& launch = setup.settings.launch;
  if (!launch.has_algorithm() || !setup.team->group()) return;
  const int world = std::max(setup.mesh->data().world(), setup.mesh->tensor().world());  // that sum
  const bool same = find_all_reduce(launch.allreduce).has_bits_of_gloo(world);
  log::info(format(
      "all-reduce {} on {}: {}", launch.allreduce, setup.backend,
      same ? "bitwise equal to gloo's all-reduce"
           : format("with {} ranks the order of sums differs from gloo's, and so do the last bits", world)));
  if (launch.latency_us == 0 && launch.bandwidth_gbit == 0) return;
  log::info(format("simulated slow network: {} us per message{}", launch.latency_us,
                   launch.bandwidth_gbit == 0 ? "" : format(", {} Gbit/s per link", launch.bandwidth_gbit)));
}

// It may compute with libtorch's all the same, and has said so then.
bool has_own_kernels(const Settings& settings, const TrainedModel& model) {
  return settings.train.kernels == KernelChoice::fast &&
         (computes_without_graph(model) || model.net().use_own_kernels());
}

// AVX512-BF16, AMX-BF16 or Arm's: without one, libtorch rounds and widens every number on its way.
bool has_bf16_instructions() {
  const std::filesystem::path facts = "/proc/cpuinfo";
  return (base::field(facts, "flags") + base::field(facts, "Features")).find("bf16") != std::string::npos;
}

void log_start(const Setup& setup, const EpochPlan& rounds, const std::string& folder, bool own_kernels) {
  const auto& job = setup.team->job();
  log::info(format("{}: {} on {} ({}, {}, {} per rank), {} per epoch, in {}", setup.settings.run.name,
                   setup.settings.task.name, base::counted(setup.team->world(), "rank"),
                   setup.team->device().str(), setup.team->group() ? setup.backend : "no group",
                   base::counted(setup.session->threads(), "thread"),
                   base::counted(rounds.steps_per_epoch, "step"), folder));
  if (!setup.mesh->is_plain()) {
    const auto& shape = setup.mesh->shape();
    log::info(format("a grid of ranks: {} data x {} tensor x {} pipeline", shape.data, shape.tensor,
                     shape.pipeline));
  }
  log_all_reduce(setup);
  if (job.scheduler != "none") log::info(format("{} job {}", job.scheduler, job.job_id));
  const auto& train = setup.settings.train;
  if (own_kernels) {
    log::info("train.kernels: fast sums in another order, so results are not bitwise equal to Python's");
  } else if (train.precision != Precision::fp32 || train.layout != ImageLayout::nchw) {
    log::info(format("precision {}, layout {}: results are bitwise equal to Python's with the same settings",
                     word_of(train.precision), word_of(train.layout)));
  }
  if (train.precision == Precision::bf16 && setup.team->device().is_cpu() && !has_bf16_instructions())
    log::warning(
        "train.precision: bf16 is slower than fp32 on this processor, which has no bf16 instructions");
}

// A failure reaches the folder before it reaches the screen.
RunEnding run_and_report(Trainer& trainer) {
  try {
    const auto ending = trainer.run();
    trainer.tell(ending.state, ending.reason);
    return ending;
  } catch (const std::exception& error) {
    launch::claim_error_report();
    trainer.tell(run_folder::RunState::failed, describe(error));
    throw;
  }
}

void log_ending(const RunEnding& ending, const std::string& folder) {
  if (ending.stopped()) {
    log::info(std::string(run_folder::name_of(ending.state)) + " (" + ending.reason +
              "). The checkpoint is complete. To continue, pass --resume auto");
  } else if (ending.reason != "epochs") {
    log::info("stopped: " +
              (ending.reason.starts_with("max_") ? "train." + ending.reason + " is reached" : ending.reason));
  }
  log::info("results saved to " + folder);
}

}  // namespace

int train(const Command& command, const std::string& asked) {
  const launch::EarlySignals early;
  auto begun = begin_job(command);
  if (spawns_ranks(begun)) return spawn_ranks(std::move(begun));
  auto setup = join_job(command, std::move(begun));
  const launch::StopSignals signals;  // what comes while we load is obeyed before the first step
  compare_ranks(setup);
  auto from = find_resume(setup, asked);
  check_place(setup, from.attempt);
  keep_chosen_settings(setup, from);
  load_data(setup);
  choose_layout(setup);
  auto learner = make_learner(setup);
  if (learner.source->is_shared()) refuse_idle_early_stop(setup);
  move_to_device(setup);
  const auto rounds = learner.rounds;
  const bool own_kernels = has_own_kernels(setup.settings, *learner.model);
  Start start;
  if (const auto saved = std::exchange(from.file, {})) start_from(start, learner, setup, *saved);
  if (setup.team->first()) {
    const auto end = std::make_shared<launch::JobEnd>(setup.team->job(), launch::current_environment(),
                                                      setup.settings.checkpoint.before_deadline);
    start.deadline = [end] { return end->known(); };
  }
  if (!from.attempt.continues_run) make_folder(setup, from.attempt);
  count_devices(setup, *learner.model, from.attempt);
  start.attempt = from.attempt;
  const auto& folder = from.attempt.path;
  if (setup.team->group() && setup.team->device().is_cuda())
    comm::cuda().record_hangs_in(folder, setup.team->rank());
  if (start.attempt.continues_run) restore_run(start, learner, setup);
  const auto trainer = make_trainer(setup, std::move(learner), start);
  log_start(setup, rounds, folder, own_kernels);
  const auto ending = run_and_report(*trainer);
  setup.team->barrier();  // whoever leaves early would take rank 0 along
  log_ending(ending, folder);
  return ending.stopped() ? kStoppedEarly : kDone;
}

}  // namespace lockstep::train
