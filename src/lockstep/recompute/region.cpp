#include "lockstep/recompute/region.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <functional>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/recompute/nested_backward.h"

namespace lockstep::recompute {
namespace {

using torch::autograd::SavedVariableHooks;

constexpr const char* kWhere = "checkpoint_activations";

// Backward runs in a thread for each device. What is computed again draws from generators that all share, of
// which the CPU's is one, and so must be alone from the first number to the last: a lock for each region
// would not do. What it computes may run a backward of its own, in this thread alone.
std::recursive_mutex& turn() {
  static std::recursive_mutex mutex;
  return mutex;
}

// Thrown out of the computation once all that was dropped is there: what follows nobody needs.
struct Enough {};

// Takes the place in autograd's graph of a tensor that was dropped.
class Absent : public SavedVariableHooks {
 public:
  explicit Absent(std::shared_ptr<Region> region) : region_(std::move(region)) {}
  void call_pack_hook(const at::Tensor& tensor) override { place_ = region_->drop(tensor); }
  at::Tensor call_unpack_hook() override { return region_->take(place_); }

 private:
  std::shared_ptr<Region> region_;
  size_t place_ = 0;
};

// Stands there for one that is kept after all.
class Present : public SavedVariableHooks {
 public:
  using Keep = std::function<void(const at::Tensor&)>;
  explicit Present(Keep keep) : keep_(std::move(keep)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.detach();
    keep_(tensor_);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  Keep keep_;
  at::Tensor tensor_;
};

// Of the inputs and the module: where it computes.
std::vector<at::Tensor> tensors_of(const RecomputedPart& part) {
  auto tensors = part.inputs;
  if (!part.module) return tensors;
  for (auto& parameter : part.module->parameters()) tensors.push_back(std::move(parameter));
  return tensors;
}

RecomputedPart without_inputs(RecomputedPart part) {
  part.inputs.clear();
  return part;
}

}  // namespace

// Takes what the second computation would keep, in its order.
class Region::Remaking : public Keeper {
 public:
  explicit Remaking(Region& region) : region_(region) {}
  std::unique_ptr<SavedVariableHooks> hooks() override {
    return std::make_unique<Present>([this](const at::Tensor& tensor) {
      if (region_.made_.size() == region_.dropped_.size()) return;
      region_.made_.push_back({tensor, tensor._version()});
      if (region_.made_.size() == region_.dropped_.size()) throw Enough();
    });
  }
  // That GPU's thread may be waiting for this one's turn to end.
  void before_backward(const std::vector<torch::autograd::Edge>& roots) override {
    const auto other = other_gpu_of(roots);
    if (!other) return;
    throw Error(
        format("computed again in backward, the function runs a backward of its own that crosses to {}",
               other->str()),
        kWhere, "keep it on one GPU, or call the function without checkpoint_activations()");
  }

 private:
  Region& region_;
};

Region::Region(RecomputedPart part, const CheckpointOptions& options)
    : part_(without_inputs(part)), autocast_(AutocastState::of(tensors_of(part))) {
  if (options.preserve_rng_state) generators_ = GeneratorStates::of(tensors_of(part));
  for (const auto& input : part.inputs) {
    if (!input.defined()) {
      inputs_.push_back({input, false, 0});
    } else {
      inputs_.push_back({input.detach(), input.requires_grad(), input._version()});
    }
  }
}

void Region::end_first_time() {
  for (auto& input : inputs_)
    input.changed_by_function = input.tensor.defined() && input.tensor._version() != input.version;
}

std::unique_ptr<SavedVariableHooks> Region::hooks() {
  return std::make_unique<Absent>(shared_from_this());
}

size_t Region::drop(const at::Tensor& tensor) {
  dropped_.push_back({tensor.sizes().vec(), tensor.scalar_type()});
  return dropped_.size() - 1;
}

at::Tensor Region::take(size_t place) {
  const std::lock_guard lock(turn());
  if (place >= made_.size() || !made_[place].tensor.defined()) compute_again();
  check_like_before(place);
  return std::exchange(made_[place], {}).tensor;
}

void Region::compute_again() {
  made_.clear();
  const auto inputs = this->inputs();
  PutBack buffers_before(BufferStates::of(part_.module));
  PutBack generators_before(generators_.now());
  PutBack autocast_before(autocast_.now());
  generators_.put_back();
  autocast_.put_back();
  compute_until_enough(inputs);
  autocast_before.put_back();
  generators_before.put_back();
  buffers_before.put_back();
}

void Region::compute_until_enough(const std::vector<at::Tensor>& inputs) {
  const torch::AutoGradMode with_graph(true);
  Remaking remaking(*this);
  const KeeperScope scope(remaking);
  try {
    part_.compute(inputs);
  } catch (const Enough&) {
  }
}

std::vector<at::Tensor> Region::inputs() const {
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto& input = inputs_[i];
    if (input.tensor.defined() && input.tensor._version() != input.version)
      throw Error(
          format("input {} was changed in place {}: what is computed again from it would not be what was "
                 "dropped",
                 i, input.changed_by_function ? "by the function" : "after the forward"),
          kWhere, input.changed_by_function ? "let it change a copy" : "give a copy of it, or change a copy");
    inputs.push_back(input.tensor.defined() ? input.tensor.detach().requires_grad_(input.learns)
                                            : at::Tensor());
  }
  return inputs;
}

void Region::check_like_before(size_t place) const {
  const char* same =
      "what it does may depend on its inputs alone, and on random numbers of libtorch's generators";
  if (place >= made_.size())
    throw Error(format("computed again, the function kept {} tensors for backward, and {} the first time",
                       made_.size(), dropped_.size()),
                kWhere, same);
  const auto& [tensor, version] = made_[place];
  const auto& [sizes, type] = dropped_[place];
  if (tensor.sizes() != sizes || tensor.scalar_type() != type)
    throw Error(format("computed again, tensor {} that backward needs is {} {}, and was {} {} the first time",
                       place, c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()),
                       c10::toString(type), c10::str(at::IntArrayRef(sizes))),
                kWhere, same);
  if (tensor._version() != version)
    throw Error(format("tensor {} that backward needs was changed in place by the function", place), kWhere,
                "let it change a copy");
}

struct Dropping::InForce {
  std::shared_ptr<Region> region;
  KeeperScope scope;

  explicit InForce(std::shared_ptr<Region> of) : region(std::move(of)), scope(*region) {}
  ~InForce() { region->end_first_time(); }
};

Dropping::Dropping(RecomputedPart part, const CheckpointOptions& options) {
  if (!torch::GradMode::is_enabled() || has_keeper()) return;
  in_force_ = std::make_unique<InForce>(std::make_shared<Region>(std::move(part), options));
}

Dropping::~Dropping() = default;

}  // namespace lockstep::recompute
