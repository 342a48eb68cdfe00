#pragma once
// Exact evaluation: each sample on exactly one rank, sums over ranks, the same answer at any world size.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/data/loader.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/team.h"
#include "lockstep/tasks/task.h"
#include "trainer/config/settings.h"
#include "trainer/observe/worst_samples.h"

namespace lockstep::train {

/// Puts the net into evaluation mode for its own lifetime.
class EvaluationMode {
 public:
  explicit EvaluationMode(Net& net) : net_(net) { net_.eval(); }
  ~EvaluationMode() { net_.train(); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  Net& net_;
};

/// Called on every rank after each batch of the evaluation, from 1; true, on all ranks, ends it.
using CutShort = std::function<bool(int64_t batch)>;

/// The metrics over the whole set, on every rank; null if it was cut short. Leaves the net in training mode.
/// Collective.
std::unique_ptr<Metrics> evaluate(const Team& team, Net& net, const Task& task, const TaskData& data,
                                  const Settings& settings, const CutShort& cut_short = {},
                                  WorstSamples* worst = nullptr);

/// The weight of a target in a mean loss, which is over the class weights, as in Python.
double weight_of(const at::Tensor& target, const at::Tensor& class_weights);

/// Whether train.eval_every asks for one after this epoch, counted from 0.
bool is_evaluation_scheduled(const TrainSettings& train, int64_t epoch);

/// A metric by its name, if it is there.
std::optional<double> value_of(const std::vector<std::pair<std::string, double>>& values,
                               const std::string& name);

struct Rounds {
  int64_t samples = 0;          // a rank's, an epoch
  int64_t batches = 0;          // a rank's, an epoch
  int64_t steps_per_epoch = 0;  // optimiser steps
  int64_t total_steps = 0;      // of the whole run
  int64_t step_samples = 0;     // of all ranks together, a full step
};

/// Throws InputError where there is nothing to train on.
Rounds plan_rounds(const Settings& settings, int64_t samples, int world);

LoaderOptions loader_options(const Settings& settings, at::Device device);

/// Draws one number, as Python's DataLoader does at the start of each pass: a model with dropout needs it for
/// Python's bits.
void draw_base_seed();

}  // namespace lockstep::train
