#pragma once
// What learns: a model, its optimiser and what goes with them. All of it goes into a checkpoint.

#include <memory>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "trainer/modes/model.h"
#include "trainer/observe/trace.h"
#include "trainer/setup/setup.h"
#include "trainer/step/evaluate.h"
#include "trainer/step/feed.h"

namespace lockstep::train {

struct Learner {
  std::unique_ptr<SampleSource> source;
  std::shared_ptr<Tracer> tracer;  // where train.trace asks for one
  Rounds rounds;                   // how long it is to learn: a schedule depends on it
  std::unique_ptr<TrainedModel> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Schedule> schedule;
  std::unique_ptr<GradScaler> scaler;      // fp16 alone
  std::unique_ptr<comm::StepGraph> graph;  // with train.graph alone
  Tree memory;                             // the task's, for predict; the same in every checkpoint
};

/// As the settings say, at the first step. Collective.
Learner make_learner(const Setup& setup);

/// This rank's parameters under the model's names.
std::vector<NamedParameter> named_parameters(const TrainedModel& model);

/// What the states of all trained parameters take on this rank, in the words of the optimiser itself.
double state_bytes_of(const Optimizer& optimizer);

}  // namespace lockstep::train
