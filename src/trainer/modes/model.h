#pragma once
// The model as a training step sees it, whatever `train.mode` says: one process alone, or ranks that share
// their gradients.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/models/layers.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/mesh.h"
#include "lockstep/tasks/task.h"
#include "trainer/config/settings.h"
#include "trainer/observe/phase_clock.h"
#include "trainer/observe/trace.h"

namespace lockstep {
class DdpCore;
}

namespace lockstep::train {

/// What the training step brings to a batch.
struct StepContext {
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> criterion;
  std::function<void(const at::Tensor& loss)> backward;  // scaled and timed; not within autocast
  std::function<std::shared_ptr<void>()> autocast;       // while it lives; around forward and criterion
  // For a model that does a batch in pieces, or a piece of it:
  std::function<void(const at::Tensor& output, const at::Tensor& gradient)> backward_from = {};
  std::function<double(const at::Tensor& target)> weight = {};  // how much it counts in the criterion's mean
  std::function<void(Phase)> enter = {};                        // what follows is of this phase
};

/// How ranks hold parts of one model. Checkpoints, norms and overflows are the whole model's. Functions that
/// make a whole are collective, and useful on rank 0 alone.
class ModelParts {
 public:
  virtual ~ModelParts() = default;

  /// The ranks that hold the other parts.
  virtual const Team& team() const = 0;
  virtual Tree whole_state_dict(const Tree& own) const = 0;
  /// InputError where it is another model's; `file` is for the message.
  virtual Tree own_state_dict(const Tree& own, const Tree& whole, const std::string& file) const = 0;
  /// An optimiser's state dict over this rank's parameters, as one over the whole model's, and back.
  virtual Tree whole_optimizer(const Tree& own) const = 0;
  virtual Tree own_optimizer(const Tree& whole) const = 0;
  /// See AllNorms (optim/clip.h).
  virtual at::Tensor whole_norms(const std::vector<at::Tensor>& own) const = 0;
};

class TrainedModel {
 public:
  explicit TrainedModel(std::shared_ptr<Net> net) : net_(std::move(net)) {}
  virtual ~TrainedModel() = default;

  /// Forward, loss and backward of one batch; the gradients are there when it returns. The batch's loss.
  virtual at::Tensor learn(const at::Tensor& input, const at::Tensor& target, const StepContext& context) {
    const auto loss = [&] {
      const auto scope = context.autocast();
      const auto output = forward(input);
      return context.criterion(output, target.to(output.device()));  // of the last stage
    }();
    context.backward(loss);
    return loss;
  }
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  /// Every parameter once, in the order of Python's model.parameters().
  virtual std::vector<at::Tensor> parameters() const = 0;
  /// While the guard lives, gradients add up here and do not travel.
  virtual std::shared_ptr<void> no_sync() { return nullptr; }
  /// Which parameters share a bucket from the next step on: beyond two ranks gloo's sums depend on it, so a
  /// resumed run must begin with it. None where gradients do not travel. Collective.
  virtual std::vector<std::vector<std::string>> buckets() { return {}; }
  virtual void restore_buckets(const std::vector<std::vector<std::string>>&) {}
  /// What averages its gradients over the ranks; null where nothing does.
  virtual DdpCore* ddp_core() { return nullptr; }
  /// Where it computes on this rank.
  virtual std::vector<at::Device> devices() const;
  /// A line for the end of the log, empty where there is nothing to say. Collective.
  virtual std::string summary() const { return {}; }
  /// Does a backward wait for other ranks?
  virtual bool exchanges() const { return false; }

  // A checkpoint holds the whole model, wherever its parameters are while it trains. Collective.

  /// From now on ranks hold parts of the model. Other copies than the first have nothing to put together.
  void set_parts(std::unique_ptr<const ModelParts> parts, bool is_first_copy) {
    parts_ = std::move(parts);
    is_first_copy_ = is_first_copy;
  }
  Tree state_dict() const;
  /// InputError, before anything is changed, where it is another model's; `file` is for the message.
  void load_state_dict(const Tree& whole, const std::string& file);
  Tree whole_optimizer(const Tree& own) const;
  Tree own_optimizer(const Tree& whole) const { return parts_ ? parts_->own_optimizer(whole) : whole; }
  /// Scales the gradients so that the whole model's have a 2-norm of at most `most`.
  void clip_gradients(double most) const;
  /// The largest over the ranks that hold other parts of the model, in place: a step is left out by all, or
  /// none.
  void share_overflow(at::Tensor& found) const;

  /// The module itself, for checkpoints and evaluation.
  Net& net() const { return *net_; }

 protected:
  std::shared_ptr<Net> net_;

 private:
  std::unique_ptr<const ModelParts> parts_;  // null where each rank has the whole model
  bool is_first_copy_ = true;
};

/// What some ways of training need beside the model.
struct ModelSupplies {
  std::function<std::shared_ptr<Net>()> another = {};  // one like it
  std::shared_ptr<Tracer> tracer = {};                 // sees each bucket
  KnownLoss known_loss = KnownLoss::none;              // what the criterion of a StepContext is
  at::Tensor class_weights = {};                       // in it
};

/// As Module.to(memory_format=...) in Python: what has four dimensions, and nothing else.
void to_channels_last(Net& net);

/// Puts the module on the ranks' device and into the layout, and wraps it as train.mode says. Collective.
std::unique_ptr<TrainedModel> make_trained_model(std::shared_ptr<Net> net, const Mesh& mesh,
                                                 const Settings& settings,
                                                 const ModelSupplies& supplies = {});

/// Refuses what cannot be trained in this mode with that many ranks, before anything is loaded.
void check_mode(const Settings& settings, int world, at::Device device);

/// train.kernels: fast for linear layers with ReLU between them: no graph, no Reducer, one sum of all
/// gradients. nullptr where the model, or what the settings ask for, needs the general way; of a model of
/// dense layers the log then says why. Collective.
std::unique_ptr<TrainedModel> make_dense_model(const std::shared_ptr<Net>& net, const Mesh& mesh,
                                               const Settings& settings, const ModelSupplies& supplies);

/// Is it one that make_dense_model() made?
bool computes_without_graph(const TrainedModel& model);

/// parallel.pipeline above 1: takes the whole model, as every rank has made it, and keeps this rank's stage,
/// to which batches come in micro-batches. Collective; InputError, on all ranks alike, where the model cannot
/// be cut so.
std::unique_ptr<TrainedModel> make_pipeline_model(std::shared_ptr<Net> net, const Mesh& mesh,
                                                  const Settings& settings,
                                                  const std::shared_ptr<Tracer>& tracer = nullptr);

/// What the tensor group's ranks have split of the net, whose parameters these are. InputError where that is
/// nothing.
std::unique_ptr<ModelParts> make_tensor_parts(const Net& net, const std::vector<at::Tensor>& parameters,
                                              const Team& team);

/// A model's layers, where the ranks of a mesh share each of them; whole ones where the mesh has no tensor
/// ranks.
std::shared_ptr<const Layers> layers_for(const Mesh& mesh, const ParallelSettings& settings);

}  // namespace lockstep::train
