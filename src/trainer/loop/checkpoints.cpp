#include "trainer/loop/checkpoints.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/collective/resume_state.h"
#include "lockstep/checkpoint/state_dict.h"
#include "trainer/loop/same_bits.h"

namespace lockstep::train {
namespace {

std::string layout_of(const Mesh& mesh) {
  return format("tensor {}, pipeline {}", mesh.shape().tensor, mesh.shape().pipeline);
}

Tree gather_losses(const Team& team, const TrainingState& state) {
  const auto mine = torch::tensor({state.loss_sum, static_cast<double>(state.loss_count)}, torch::kFloat64);
  return torch::stack(team.all_gather(mine));
}

int64_t format_of(const Tree& memory) {
  const auto scale = memory.isNone() ? std::nullopt : find(memory, "label_scale");
  return scale && !scale->isNone() ? checkpoint::kCheckpointFormat : checkpoint::kFirstFormat;
}

Tree extras(const Mesh& mesh, const TrainingState& state, const Learner& learner, const std::string& config) {
  const auto dict = make_dict({{"format", format_of(learner.memory)},
                               {"world", int64_t{mesh.data().world()}},
                               {"consumed", state.consumed},
                               {"step_in_epoch", state.step_in_epoch},
                               {"epoch_trained", state.epoch_trained},
                               {"seconds", state.seconds},
                               {"metrics_offset", state.metrics_offset},
                               {"best_loss", state.best_loss},
                               {"epochs_without_better", state.epochs_without_better},
                               {"losses", gather_losses(mesh.data(), state)},
                               {"config", config},
                               {"task", learner.memory}});
  checkpoint::put_machine(dict);
  put_run_facts(mesh.all(), dict);
  checkpoint::put_generators(mesh.all(), dict, checkpoint::gpus_of(mesh.all(), learner.model->devices()));
  if (const auto own = learner.source->state_dict(state); !own.isNone()) put(dict, "acting", own);
  put(dict, "schedule", learner.schedule->state_dict());
  if (learner.scaler) put(dict, "scaler", learner.scaler->state_dict());
  put(dict, "buckets", checkpoint::tree_of(learner.model->buckets()));
  checkpoint::put_hook_memory(mesh.all(), learner.model->ddp_core(), layout_of(mesh), dict);
  return dict;
}

int64_t count_in(const Tree& dict, const char* key) {
  constexpr int64_t kMost = 1'000'000'000'000'000;  // more than a run can reach
  const auto count = as_int(get(dict, key), key);
  if (count >= 0 && count <= kMost) return count;
  throw InputError(format("\"{}\" in the checkpoint is {}, which is not possible", key, count), key,
                   "use an earlier checkpoint");
}

void restore_losses(const Team& team, const Tree& extras, TrainingState& state) {
  const auto losses = as_tensor(get(extras, "losses"), "lockstep.losses").to(torch::kFloat64).contiguous();
  if (losses.dim() != 2 || losses.size(1) != 2) {
    throw InputError("\"losses\" in the checkpoint is not a pair of numbers for each rank", "lockstep.losses",
                     "use an earlier checkpoint");
  }
  const bool same_world = losses.size(0) == team.world();
  // at another world size rank 0 carries what was summed so far
  if (!same_world && !team.first()) return;
  const auto mine = same_world ? losses[team.rank()] : losses.sum(0);
  state.loss_sum = mine[0].item<double>();
  state.loss_count = static_cast<int64_t>(mine[1].item<double>());
}

void restore_schedule(Schedule& schedule, const Tree& state) {
  try {
    schedule.load_state_dict(state);
  } catch (const InputError& error) {  // another schedule keeps other numbers
    throw InputError(
        std::string("the checkpoint's schedule is not the config's: ") + error.what(), "schedule.name",
        "resume with the schedule that the checkpoint was trained with, or with schedule.name: none");
  }
}

// Else a sample's number is not what it was, nor what is left of an epoch.
void compare_samples(const Tree& extras, const Tree& own) {
  const auto saved = find(extras, "task");
  if (!saved || saved->isNone() || own.isNone()) return;
  const auto before = find(*saved, "identity"), now = find(own, "identity");
  if (!before || !now ||
      as_string(*before, "lockstep.task.identity") == as_string(*now, "lockstep.task.identity"))
    return;
  log::warning(
      "the samples or the class names differ from those that the checkpoint was trained on: the bits will "
      "differ "
      "from an uninterrupted run");
}

TrainingState from_own(const Mesh& mesh, const Tree& tree, const Tree& extras, Learner& learner) {
  TrainingState state;
  state.step = count_in(tree, "iter_no");
  state.epoch = count_in(tree, "epoch");
  state.consumed = count_in(extras, "consumed");
  state.step_in_epoch = count_in(extras, "step_in_epoch");
  state.epoch_trained = as_bool(get(extras, "epoch_trained"), "epoch_trained");
  state.seconds = as_double(get(extras, "seconds"), "seconds");
  state.metrics_offset = count_in(extras, "metrics_offset");
  state.best_loss = as_double(get(extras, "best_loss"), "best_loss");
  state.epochs_without_better = count_in(extras, "epochs_without_better");
  restore_losses(mesh.data(), extras, state);
  restore_schedule(*learner.schedule, get(extras, "schedule"));
  if (const auto scaler = find(extras, "scaler"); scaler && learner.scaler)
    learner.scaler->load_state_dict(*scaler);
  checkpoint::restore_generators(mesh.all(), extras,
                                 checkpoint::gpus_of(mesh.all(), learner.model->devices()));
  if (const auto list = find(extras, "buckets")) {
    const auto buckets = checkpoint::buckets_of(*list);
    if (!buckets.empty()) learner.model->restore_buckets(buckets);
  }
  checkpoint::restore_hook_memory(mesh.all(), learner.model->ddp_core(), layout_of(mesh), extras);
  compare_samples(extras, learner.memory);
  return state;
}

// A file that Python wrote says which iteration it is, if anything.
TrainingState from_python(const Tree& tree, const Rounds& rounds) {
  TrainingState state;
  if (find(tree, "iter_no")) state.step = count_in(tree, "iter_no");
  state.epoch = state.step / rounds.steps_per_epoch;
  state.step_in_epoch = state.step % rounds.steps_per_epoch;
  state.consumed = state.step_in_epoch * rounds.step_samples;
  log::info(
      format("the checkpoint is not from lockstep: resuming from step {}, epoch {}; the schedule and the "
             "random numbers start anew",
             state.step, state.epoch));
  return state;
}

}  // namespace

Tree to_checkpoint(const Mesh& mesh, const TrainingState& state, const Learner& learner,
                   const std::string& config) {
  const auto more = extras(mesh, state, learner, config);
  const auto model = learner.model->state_dict();
  const auto optimizer = learner.model->whole_optimizer(learner.optimizer->state_dict());
  if (!mesh.all().first()) return make_dict();
  return make_dict({{"iter_no", state.step},
                    {"epoch", state.epoch},
                    {"model", model},
                    {"optimizer", optimizer},
                    {checkpoint::kTrainerKey, more}});
}

TrainingState from_checkpoint(const Mesh& mesh, const Tree& tree, const std::string& file, Learner& learner) {
  const auto extras = find(tree, checkpoint::kTrainerKey);
  learner.model->load_state_dict(find_state_dict(tree, file), file);
  if (const auto optimizer = find(tree, "optimizer")) {
    const auto own = learner.model->own_optimizer(*optimizer);
    mesh.all().together(
        [&] { learner.optimizer->load_state_dict(own); });  // one rank's may be another's bad part
  }
  auto state = extras ? from_own(mesh, tree, *extras, learner) : from_python(tree, learner.rounds);
  learner.source->restore(extras ? find(*extras, "acting") : std::nullopt, state);
  return state;
}

namespace {

bool is_same_place(const TrainingState& a, const TrainingState& b) {
  return a.step == b.step && a.epoch == b.epoch && a.epoch_trained == b.epoch_trained;
}

bool is_multiple(int64_t number, int64_t every) {
  return every > 0 && number % every == 0;
}

}  // namespace

Checkpoints::Checkpoints(Subject subject, const TrainingState& state, const RunAttempt& attempt,
                         run_folder::Requests* requests, RunLog& log)
    : subject_(std::move(subject)), log_(log), requests_(requests) {
  if (!attempt.found.empty()) saved_ = state;
  if (!attempt.folder) return;
  const auto store = [folder = attempt.folder, keep = subject_.settings.checkpoint.keep] {
    return CheckpointStore((folder->path() / "checkpoints").string(), keep, [folder] { folder->check(); });
  };
  writer_ = std::make_unique<CheckpointWriter>(store, [&log](const auto& path) { log.saved(path); });
}

bool Checkpoints::is_due(const TrainingState& state) const {
  return is_multiple(state.step, subject_.settings.checkpoint.every_steps) && !state.epoch_trained;
}

bool Checkpoints::is_wanted(const TrainingState& state) {
  if (!requests_) return false;
  answer_when_written(state);
  const double minutes = std::chrono::duration<double, std::ratio<60>>(Clock::now() - saved_at_).count();
  const double every = subject_.settings.checkpoint.every_minutes;
  return (every > 0 && minutes >= every) ||
         (requests_->asked(run_folder::RunRequest::checkpoint) && !answer_is_pending_);
}

void Checkpoints::save(const TrainingState& state, const LossTrace& losses) {
  if (requests_ && requests_->asked(run_folder::RunRequest::checkpoint)) answer_is_pending_ = true;
  if (saved_ && is_same_place(*saved_, state)) return;
  take(state, losses, std::exchange(best_is_new_, false) ? Name::both : Name::step);
  saved_ = state;
  saved_at_ = Clock::now();
}

void Checkpoints::save_after_epoch(const TrainingState& state, const LossTrace& losses, bool better,
                                   bool last) {
  best_is_new_ = better && subject_.settings.checkpoint.best;
  if (last) return;
  if (is_multiple(state.epoch, subject_.settings.checkpoint.every_epochs)) {
    save(state, losses);
  } else if (std::exchange(best_is_new_, false)) {
    take(state, losses, Name::best);
  }
}

void Checkpoints::take(TrainingState state, const LossTrace& losses, Name name) {
  const Traced span(subject_.learner.tracer.get(), SpanKind::checkpoint);
  refuse_not_finite(subject_.mesh.all(), subject_.learner, state);
  state.seconds = log_.seconds();
  state.metrics_offset = log_.metrics_offset();
  state.loss_sum = losses.sum();
  state.loss_count = losses.count();
  const auto tree = to_checkpoint(subject_.mesh, state, subject_.learner, subject_.config);
  if (!writer_) return;
  write(tree, name);
  log_.note_place(state);
}

void Checkpoints::write(const Tree& tree, Name name) {
  try {
    writer_->submit(tree, name);
    if (std::exchange(fails_, false)) log::info("checkpoints can be written again");
  } catch (const run_folder::FolderLost&) {
    throw;
  } catch (const std::exception& error) {  // the one before: a full disk may have room again
    warn(error);
    writer_->submit(tree, name);
  }
}

void Checkpoints::warn(const std::exception& error) {
  log_.not_saved(describe(error));
  if (std::exchange(fails_, true)) return;
  log::warning("a checkpoint could not be written\n" + describe(error) +
               "\nTraining continues. Further checkpoint failures are not reported.");
}

// The file of the request goes when the checkpoint is whole and the status names it, or when it cannot be
// written.
void Checkpoints::answer_when_written(const TrainingState& state) {
  if (!answer_is_pending_ || !writer_->idle()) return;
  answer_is_pending_ = false;
  try {
    writer_->wait();
  } catch (const run_folder::FolderLost&) {
    throw;
  } catch (const std::exception& error) {
    warn(error);
  }
  log_.tell(state, run_folder::RunState::running, "");
  requests_->answer(run_folder::RunRequest::checkpoint);
}

void Checkpoints::finish() {
  subject_.mesh.all().together([this] {
    if (writer_) writer_->wait();
  });
}

}  // namespace lockstep::train
