// A trainer's checkpoints: taken on all ranks together, written by rank 0 in the background.
#include <unistd.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {
namespace {

bool same_place(const TrainingState& a, const TrainingState& b) {
  return a.step == b.step && a.epoch == b.epoch && a.epoch_trained == b.epoch_trained;
}

}  // namespace

void Trainer::write_to(std::shared_ptr<run_folder::HeldFolder> folder, int64_t attempt) {
  run_folder::RunStatus status;
  status.step = state_.step;
  status.epoch = state_.epoch;
  status.epochs = settings_.train.epochs;
  status.attempt = attempt;
  status.world = team_.world();
  status.host = team_.job().host;
  status.job_id = team_.job().job_id;
  status.pid = ::getpid();
  status.seconds = state_.seconds;
  if (saved_) status.checkpoint = "checkpoints/" + std::filesystem::path(newest_).filename().string();
  requests_.emplace(folder->path(), attempt);
  recorder_ = std::make_unique<run_folder::Recorder>(folder, status, state_.metrics_offset);
  const auto store = [folder, keep = settings_.checkpoint.keep] {
    const auto path = folder->path();
    return CheckpointStore((path / "checkpoints").string(), keep, [folder, path] { folder->check(path); });
  };
  writer_ = std::make_unique<CheckpointWriter>(store, [this](const auto& path) { recorder_->saved(path); });
}

void Trainer::restore(const Tree& checkpoint, const std::string& file) {
  const int64_t samples_per_step = settings_.data.batch_size * settings_.train.accumulate * team_.world();
  state_ = from_checkpoint(team_, checkpoint, file, parts(), rounds_.steps_per_epoch, samples_per_step);
  losses_.restart(state_.loss_sum, state_.loss_count);
  seconds_before_ = state_.seconds;
}

void Trainer::found_in(const std::string& path) {
  newest_ = path;
  saved_ = state_;
}

// Every checkpoint follows an agreement in which no rank had a bad loss.
void Trainer::checkpoint(Save what) {
  const bool newest = what == Save::newest;
  if (requests_ && newest && requests_->asked(run_folder::Request::checkpoint)) answer_is_near_ = true;
  if (newest && saved_ && same_place(*saved_, state_)) return;
  refuse_what_is_not_finite();
  state_.seconds = seconds_trained();
  state_.metrics_offset = recorder_ ? recorder_->metrics_offset() : 0;
  state_.loss_sum = losses_.sum();
  state_.loss_count = losses_.count();
  const auto tree = to_checkpoint(team_, state_, parts(), setup_.config);
  if (newest) saved_ = state_, save_begin_ = Clock::now();
  const bool best = std::exchange(best_is_new_, false);
  if (writer_)
    write(tree, !newest ? CheckpointStore::Name::best
                : best  ? CheckpointStore::Name::both
                        : CheckpointStore::Name::step);
}

void Trainer::write(const Tree& tree, CheckpointStore::Name name) {
  try {
    writer_->submit(tree, name);
    if (std::exchange(checkpoints_fail_, false)) log::info("checkpoints can be written again");
  } catch (const run_folder::FolderTaken&) {
    throw;
  } catch (const std::exception& error) {  // the one before: a full disk may have room again
    warn_of_checkpoint(error);
    writer_->submit(tree, name);
  }
  recorder_->note([&](run_folder::RunStatus& status) { status.step = state_.step; });
}

void Trainer::warn_of_checkpoint(const std::exception& error) {
  if (std::exchange(checkpoints_fail_, true)) return;
  log::warning("a checkpoint could not be written\n" + describe(error) +
               "\nTraining goes on, and the next checkpoints will be tried without a word.");
}

// The file of the request goes when the checkpoint is whole and the status names it, or when it cannot be
// written.
void Trainer::answer_when_saved() {
  if (!answer_is_near_ || !writer_->idle()) return;
  answer_is_near_ = false;
  try {
    writer_->wait();
  } catch (const run_folder::FolderTaken&) {
    throw;
  } catch (const std::exception& error) {
    warn_of_checkpoint(error);
  }
  tell(run_folder::RunState::running, "");
  requests_->answer(run_folder::Request::checkpoint);
}

// Where the run's folder was removed, its last checkpoint is written again, beside it.
void Trainer::finish_checkpoints() {
  const auto here = team_.from_first([this] { return last_checkpoint_lies_here() ? "yes" : "no"; });
  if (here == "yes") return;
  saved_.reset();
  checkpoint();
  team_.together([this] {
    if (writer_) writer_->wait();
  });
}

bool Trainer::last_checkpoint_lies_here() {
  if (!writer_) return true;
  try {
    writer_->wait();
  } catch (const run_folder::FolderRemoved&) {
    return false;
  }
  const auto& last = writer_->last_saved().empty() ? newest_ : writer_->last_saved();
  return recorder_->holds(last);
}

}  // namespace lockstep::train
