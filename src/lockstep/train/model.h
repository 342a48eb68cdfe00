#pragma once
// The model as a training step sees it, whatever `train.mode` says: one process alone, or ranks that share
// their gradients.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/config/settings.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/team.h"

namespace lockstep::train {

class TrainedModel {
 public:
  explicit TrainedModel(std::shared_ptr<Net> net) : net_(std::move(net)) {}
  virtual ~TrainedModel() = default;

  virtual at::Tensor forward(const at::Tensor& input) = 0;
  /// Every parameter once, in the order of Python's model.parameters().
  virtual std::vector<at::Tensor> parameters() const = 0;
  /// While the guard lives, gradients add up here and do not travel.
  virtual std::shared_ptr<void> no_sync() { return nullptr; }
  /// Which parameters share a bucket from the next step on: beyond two ranks gloo's sums depend on it, so a
  /// resumed run must begin with it. None where gradients do not travel. Collective.
  virtual std::vector<std::vector<std::string>> buckets() { return {}; }
  virtual void restore_buckets(const std::vector<std::vector<std::string>>&) {}
  /// Does a backward wait for other ranks?
  virtual bool exchanges() const { return false; }

  /// The module itself, for checkpoints and evaluation.
  Net& net() const { return *net_; }

 protected:
  std::shared_ptr<Net> net_;
};

/// Puts the module on the team's device and into the layout, and wraps it as train.mode says. Collective.
std::unique_ptr<TrainedModel> make_trained_model(std::shared_ptr<Net> net, const Team& team,
                                                 const Settings& settings);

/// Refuses what cannot be trained in this mode with that many ranks, before anything is loaded.
void check_mode(const Settings& settings, int world, at::Device device);

}  // namespace lockstep::train
