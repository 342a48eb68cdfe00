#include "tools/bench/training_steps.h"

namespace lockstep::bench {

TrainingSteps::TrainingSteps(const train::Setup& setup)
    : learner_(train::make_learner(setup)),
      step_(setup, learner_),
      feed_(learner_.source->feed(setup.settings)) {
  clock_.time_on(setup.team->device());
}

void TrainingSteps::begin_epoch() {
  if (epoch_) {
    read_pending();
    ++state_.epoch;
  }
  clock_.enter(train::Phase::data);
  epoch_.reset();  // its workers leave before others come
  learner_.source->prepare(learner_.model->net(), state_);
  epoch_.reset(new train::EpochFeed(feed_.epoch(state_)));
  next_ = epoch_->begin();
  clock_.enter(train::Phase::other);
}

void TrainingSteps::make_ready() {
  if (!epoch_ || *next_ == epoch_->end()) begin_epoch();
}

void TrainingSteps::take() {
  make_ready();
  auto& batches = **next_;
  step_.run(++state_.step, batches, losses_, clock_);
  samples_ += batches.samples();
  ++*next_;
}

}  // namespace lockstep::bench
