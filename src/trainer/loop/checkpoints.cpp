#include "trainer/loop/checkpoints.h"

#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "trainer/loop/not_finite.h"
#include "trainer/loop/whole_state.h"

namespace lockstep::train {
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
    : subject_(std::move(subject)), log_(log), requests_(requests), found_(attempt.found) {
  if (!found_.empty()) saved_ = state;
  if (!attempt.folder) return;
  const auto store = [folder = attempt.folder, keep = subject_.settings.checkpoint.keep] {
    const auto path = folder->path();
    return CheckpointStore((path / "checkpoints").string(), keep, [folder, path] { folder->check(path); });
  };
  writer_ = std::make_unique<CheckpointWriter>(store, [&log](const auto& path) { log.saved(path); });
}

bool Checkpoints::is_due(const TrainingState& state) const {
  return is_multiple(state.step, subject_.settings.checkpoint.every_steps) && !state.epoch_trained;
}

bool Checkpoints::is_due_after_epoch(const TrainingState& state) const {
  return is_multiple(state.epoch + 1, subject_.settings.checkpoint.every_epochs);
}

bool Checkpoints::is_wanted(const TrainingState& state) {
  if (!requests_) return false;
  answer_when_written(state);
  const double minutes = std::chrono::duration<double, std::ratio<60>>(Clock::now() - saved_at_).count();
  const double every = subject_.settings.checkpoint.every_minutes;
  return (every > 0 && minutes >= every) ||
         (requests_->asked(run_folder::RunRequest::checkpoint) && !answer_is_near_);
}

void Checkpoints::save(const TrainingState& state, const LossTrace& losses) {
  if (requests_ && requests_->asked(run_folder::RunRequest::checkpoint)) answer_is_near_ = true;
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
  } catch (const run_folder::FolderTaken&) {
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
               "\nTraining goes on, and the next checkpoints will be tried without a word.");
}

// The file of the request goes when the checkpoint is whole and the status names it, or when it cannot be
// written.
void Checkpoints::answer_when_written(const TrainingState& state) {
  if (!answer_is_near_ || !writer_->idle()) return;
  answer_is_near_ = false;
  try {
    writer_->wait();
  } catch (const run_folder::FolderTaken&) {
    throw;
  } catch (const std::exception& error) {
    warn(error);
  }
  log_.tell(state, run_folder::RunState::running, "");
  requests_->answer(run_folder::RunRequest::checkpoint);
}

void Checkpoints::finish(const TrainingState& state, const LossTrace& losses) {
  const auto here = subject_.mesh.all().from_first([this] { return last_lies_here() ? "yes" : "no"; });
  if (here == "yes") return;
  saved_.reset();
  save(state, losses);
  subject_.mesh.all().together([this] {
    if (writer_) writer_->wait();
  });
}

bool Checkpoints::last_lies_here() {
  if (!writer_) return true;
  try {
    writer_->wait();
  } catch (const run_folder::FolderRemoved&) {
    return false;
  }
  return log_.holds(writer_->last_saved().empty() ? found_ : writer_->last_saved());
}

}  // namespace lockstep::train
