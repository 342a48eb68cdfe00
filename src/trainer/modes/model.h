#pragma once
// The model as a training step sees it: one process alone, or ranks that share gradients or parts of it.

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
struct DdpOptions;
}  // namespace lockstep

namespace lockstep::train {

/// `with torch.autocast(device, dtype)` for a scope; does nothing with fp32.
class Autocast {
 public:
  Autocast(at::DeviceType device, Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool on_;
  bool was_on_ = false;
  at::ScalarType was_type_ = at::kFloat;
};

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

/// How ranks hold parts of one model. Those that return the whole are collective, and useful only on rank 0.
class ModelParts {
 public:
  virtual ~ModelParts() = default;

  /// The ranks that hold the other parts.
  virtual const Team& team() const = 0;
  virtual Tree whole_state_dict(const Tree& own) const = 0;
  /// InputError where it is another model's; `file` is for the message.
  virtual Tree own_state_dict(const Tree& own, const Tree& whole, const std::string& file) const = 0;
  /// An optimizer's state dict over this rank's parameters, as one over the whole model's, and back.
  virtual Tree whole_optimizer(const Tree& own) const = 0;
  virtual Tree own_optimizer(const Tree& whole) const = 0;
  /// See NormGather (optim/clip.h).
  virtual at::Tensor whole_norms(const std::vector<at::Tensor>& own) const = 0;
};

class TrainedModel {
 public:
  explicit TrainedModel(std::shared_ptr<Net> net) : net_(std::move(net)) {}
  virtual ~TrainedModel() = default;

  /// Forward, loss and backward of one batch; returns its loss.
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
  /// While the guard lives, gradients add up locally.
  virtual std::shared_ptr<void> no_sync() { return nullptr; }
  /// Which parameters share a bucket from the next step on; empty where ranks exchange no gradients. A
  /// resumed run needs the same, because gloo's sums of three ranks and more depend on it. Collective.
  virtual std::vector<std::vector<std::string>> buckets() { return {}; }
  virtual void restore_buckets(const std::vector<std::vector<std::string>>&) {}
  /// What averages its gradients over the ranks; null where nothing does.
  virtual DdpCore* ddp_core() { return nullptr; }
  /// Where it computes on this rank.
  virtual std::vector<at::Device> devices() const;
  /// A line for the end of the log, or empty. Collective.
  virtual std::string summary() const { return {}; }
  /// Whether a backward waits for other ranks.
  virtual bool exchanges() const { return false; }

  // A checkpoint holds the whole model, wherever its parameters are while it trains. Collective.

  /// From now on ranks hold parts of the model; only its first copy assembles the whole.
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
  /// Takes the largest over the ranks that hold parts of the model: all of them skip a step, or none.
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

/// As the section `ddp` of a config says.
DdpOptions ddp_options(const DdpSettings& settings);

/// Registers the hook that the section names, with a span for each bucket where there is a tracer.
void add_comm_hook(DdpCore& core, const DdpSettings& settings, const ProcessGroup& group,
                   const std::shared_ptr<Tracer>& tracer, bool ranges);

/// Puts the module on the ranks' device and into the layout, and wraps it as train.mode says. Collective.
std::unique_ptr<TrainedModel> make_trained_model(std::shared_ptr<Net> net, const Mesh& mesh,
                                                 const Settings& settings,
                                                 const ModelSupplies& supplies = {});

/// InputError for what this mode cannot train with so many ranks; before anything is loaded.
void check_mode(const Settings& settings, int world, at::Device device);

/// Whether the model is trained by lockstep's kernels for dense layers, without autograd.
bool computes_without_graph(const TrainedModel& model);

/// parallel.pipeline above 1: keeps this rank's stage of the whole model. InputError on all ranks if the
/// model cannot be cut. Collective.
std::unique_ptr<TrainedModel> make_pipeline_model(std::shared_ptr<Net> net, const Mesh& mesh,
                                                  const Settings& settings,
                                                  const std::shared_ptr<Tracer>& tracer = nullptr);

/// What the tensor group's ranks have split of the net, whose parameters these are. InputError if nothing.
std::unique_ptr<ModelParts> make_tensor_parts(const Net& net, const std::vector<at::Tensor>& parameters,
                                              const Team& team);

/// A model's layers, shared by the tensor ranks of a mesh; whole ones if there are none.
std::shared_ptr<const Layers> layers_for(const Mesh& mesh, const ParallelSettings& settings);

}  // namespace lockstep::train
