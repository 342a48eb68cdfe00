#pragma once
// Exact evaluation: each sample on exactly one rank, sums over ranks, the same answer at any world size. And
// the samples that the model is most wrong about.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/team.h"
#include "lockstep/tasks/task.h"
#include "trainer/config/settings.h"
#include "trainer/step/feed.h"

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

struct WorstSample {
  double loss = 0;  ///< the cross-entropy of this sample alone; infinite where it is no number
  int64_t number = 0, actual = 0, predicted = 0;
  double probability = 0;            ///< of `predicted`, as the model has it
  std::vector<int64_t> shape = {};   ///< of an image, channels first; empty where it is none
  std::vector<uint8_t> pixels = {};  ///< stretched from the image's darkest to its brightest
};

class WorstSamples {
 public:
  static constexpr size_t kMost = 12;

  /// A batch's output with a row of class scores for each sample; other outputs are skipped. CPU tensors.
  void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices);
  /// This rank's, the worst first.
  const std::vector<WorstSample>& kept() const { return kept_; }
  /// The worst of all ranks with their pixels, on every rank. Collective.
  std::vector<WorstSample> gather(const Team& team, const Dataset& set) const;

 private:
  void offer(const WorstSample& sample);
  std::vector<WorstSample> kept_;
};

/// Called on every rank after each batch of the evaluation, from 1; true, on all ranks, ends it.
using StopEvaluation = std::function<bool(int64_t batch)>;

/// The metrics over the whole set, on every rank; null if cut short. Leaves the net training. Collective.
std::unique_ptr<Metrics> evaluate(const Team& team, Net& net, const Task& task, const TaskData& data,
                                  const Settings& settings, const StopEvaluation& cut_short = {},
                                  WorstSamples* worst = nullptr);

/// The weight of a target in a mean loss, which is over the class weights, as in Python.
double weight_of(const at::Tensor& target, const at::Tensor& class_weights);

/// Whether train.eval_every asks for one after this epoch, counted from 0.
bool is_evaluation_scheduled(const TrainSettings& train, int64_t epoch);

/// A metric by its name, if it is there.
std::optional<double> value_of(const std::vector<std::pair<std::string, double>>& values,
                               const std::string& name);

}  // namespace lockstep::train
