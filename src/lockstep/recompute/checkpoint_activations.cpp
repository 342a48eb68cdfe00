#include "lockstep/recompute/checkpoint_activations.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::recompute {

// Who decides what becomes of the tensors that autograd keeps for backward: libtorch's saved-tensor hooks,
// which it offers to Python alone, for C++.

/// Asked for each tensor that is kept, in the thread that has it in force.
class Keeper {
 public:
  virtual ~Keeper() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
  /// This thread is about to run a backward from there.
  virtual void before_backward(const std::vector<torch::autograd::Edge>& /*roots*/) {}
};

/// In force in this thread while it lives.
class KeeperScope {
 public:
  explicit KeeperScope(Keeper& keeper);
  ~KeeperScope();
  KeeperScope(const KeeperScope&) = delete;
  KeeperScope& operator=(const KeeperScope&) = delete;

 private:
  Keeper* before_;
};

namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::variable_list;
using Root = decltype(torch::autograd::NodeTask::fn_);  // held in one way or the other, by version

thread_local Keeper* in_force = nullptr;

// Of the engine that was there, which goes on to do all work.
template <class Base>
class Wrapped : public Base {
 protected:
  explicit Wrapped(Base& worker) : worker_(worker) {}
  Base& worker_;
};

// Hands on what libtorchs before 2.15 have not.
template <class Base>
class WithNodeHooks : public Wrapped<Base> {
 protected:
  using Wrapped<Base>::Wrapped;
};
template <class Base>
requires requires(Base& engine) {
  engine.get_node_creation_hooks();
}
class WithNodeHooks<Base> : public Wrapped<Base> {
 public:
  decltype(std::declval<Base&>().get_node_creation_hooks()) get_node_creation_hooks() override {
    return this->worker_.get_node_creation_hooks();
  }

 protected:
  using Wrapped<Base>::Wrapped;
};

// Autograd asks its engine for hooks. This one has them.
class EngineWithHooks : public WithNodeHooks<Engine> {
 public:
  explicit EngineWithHooks(Engine& worker) : WithNodeHooks(worker) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return in_force ? in_force->hooks() : worker_.get_default_saved_variable_hooks();
  }
  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                        bool create_graph, bool accumulate_grad, const edge_list& outputs) override {
    if (in_force) in_force->before_backward(roots);
    return worker_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, Root root,
      torch::autograd::InputBuffer&& buffer) override {
    return worker_.execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return worker_.make_anomaly_metadata();
  }
};

std::atomic<Engine*> with_hooks = nullptr;

bool is_installed() {
  return &Engine::get_default_engine() == with_hooks;
}

// Again where another has taken its place: libtorch_python, loaded later, brings an engine of its own. One
// that was wrapped lives as long as the process, as libtorch's own.
void install() {
  static std::mutex mutex;
  if (is_installed()) return;
  const std::lock_guard lock(mutex);
  if (is_installed()) return;
  with_hooks = new EngineWithHooks(Engine::get_default_engine());
  torch::autograd::set_default_engine_stub([]() -> Engine& { return *with_hooks; });
}

}  // namespace

KeeperScope::KeeperScope(Keeper& keeper) : before_(in_force) {
  install();
  in_force = &keeper;
}

KeeperScope::~KeeperScope() {
  in_force = before_;
}

/// Is one in force in this thread?
bool has_keeper() {
  return in_force != nullptr;
}

// A backward that a function runs of its own, while autograd's threads compute.

namespace {

using torch::autograd::Node;

// Of the node that is computed in this thread; where there is none, a thread without a GPU.
c10::Device device_of_this_thread() {
  const auto node = torch::autograd::get_current_node();
  return node ? node->device() : c10::Device(c10::kCPU);
}

}  // namespace

/// A GPU whose thread a backward from these roots would wait for, other than the one whose thread this is.
std::optional<c10::Device> other_gpu_of(const std::vector<torch::autograd::Edge>& roots) {
  const auto here = device_of_this_thread();
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto add = [&](const std::vector<torch::autograd::Edge>& edges) {
    for (const auto& edge : edges)
      if (edge.is_valid() && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
  };
  add(roots);
  while (!open.empty()) {
    auto* node = open.back();
    open.pop_back();
    if (node->device().is_cuda() && node->device() != here) return node->device();
    add(node->next_edges());
  }
  return std::nullopt;
}

// What a computation depends on beside its inputs, as it was when it ran: random numbers, buffers and
// autocast.

/// The state of some generators.
class GeneratorStates {
 public:
  /// The CPU's, and those of the devices where these tensors are.
  static GeneratorStates of(const std::vector<at::Tensor>& tensors);
  /// Of the same generators, as they are now.
  GeneratorStates now() const;
  void put_back() const;

 private:
  void add(const at::Generator& generator);
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// The values of some buffers, such as BatchNorm's statistics.
class BufferStates {
 public:
  /// A module's; none without one.
  static BufferStates of(const std::shared_ptr<torch::nn::Module>& module);
  void put_back() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

/// Autocast of the CPU and of some devices. Put back, it keeps no casts of weights: those are the whole
/// process's, and another thread may be within a forward.
class AutocastState {
 public:
  static AutocastState of(const std::vector<at::Tensor>& tensors);
  /// As it is now, whether it keeps casts included.
  AutocastState now() const;
  void put_back() const;

 private:
  struct Device {
    at::DeviceType type;
    bool enabled;
    at::ScalarType dtype;
  };
  static Device of(at::DeviceType type);
  std::vector<Device> devices_;
  bool caches_ = false;
};

/// Puts a state back when told, and at its end at the latest: there it drops errors, since the one that is
/// on its way says more.
template <class State>
class PutBack {
 public:
  explicit PutBack(State state) : state_(std::move(state)) {}
  ~PutBack() {
    try {
      put_back();
    } catch (...) {
    }
  }
  PutBack(const PutBack&) = delete;
  PutBack& operator=(const PutBack&) = delete;

  void put_back() {
    if (!std::exchange(done_, true)) state_.put_back();
  }

 private:
  const State state_;
  bool done_ = false;
};

void GeneratorStates::add(const at::Generator& generator) {
  auto asked = generator;
  const std::lock_guard lock(asked.mutex());
  states_.emplace_back(generator, asked.get_state());
}

GeneratorStates GeneratorStates::of(const std::vector<at::Tensor>& tensors) {
  GeneratorStates states;
  states.add(at::globalContext().defaultGenerator(at::kCPU));
  std::set<at::DeviceIndex> seen;
  for (const auto& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cuda() || !seen.insert(tensor.device().index()).second) continue;
    states.add(at::globalContext().defaultGenerator(tensor.device()));
  }
  return states;
}

GeneratorStates GeneratorStates::now() const {
  GeneratorStates states;
  for (const auto& [generator, state] : states_) states.add(generator);
  return states;
}

void GeneratorStates::put_back() const {
  for (const auto& [generator, state] : states_) {
    auto asked = generator;
    const std::lock_guard lock(asked.mutex());
    asked.set_state(state);
  }
}

// variable_data(): autograd may have kept a buffer, and need not hear of this.
BufferStates BufferStates::of(const std::shared_ptr<torch::nn::Module>& module) {
  BufferStates states;
  if (!module) return states;
  for (const auto& buffer : module->buffers())
    if (buffer.defined()) states.kept_.emplace_back(buffer, buffer.variable_data().clone());
  return states;
}

void BufferStates::put_back() const {
  for (const auto& [buffer, kept] : kept_) buffer.variable_data().copy_(kept);
}

AutocastState::Device AutocastState::of(at::DeviceType type) {
  return {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
}

AutocastState AutocastState::of(const std::vector<at::Tensor>& tensors) {
  AutocastState state;
  state.devices_.push_back(of(at::kCPU));
  const auto on_gpu = [](const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); };
  if (std::any_of(tensors.begin(), tensors.end(), on_gpu)) state.devices_.push_back(of(at::kCUDA));
  return state;
}

AutocastState AutocastState::now() const {
  AutocastState state;
  for (const auto& device : devices_) state.devices_.push_back(of(device.type));
  state.caches_ = at::autocast::is_autocast_cache_enabled();
  return state;
}

void AutocastState::put_back() const {
  for (const auto& device : devices_) {
    at::autocast::set_autocast_enabled(device.type, device.enabled);
    at::autocast::set_autocast_dtype(device.type, device.dtype);
  }
  at::autocast::set_autocast_cache_enabled(caches_);
}

// A part of a forward whose activations are dropped, and computed again when backward asks for the first of
// them.

class Region : public Keeper, public std::enable_shared_from_this<Region> {
 public:
  Region(RecomputedPart part, const CheckpointOptions& options);

  /// The function has returned for the first time.
  void end_first_time();
  /// For the next tensor that is to be kept.
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
  /// The place of a tensor that is dropped.
  size_t drop(const at::Tensor& tensor);
  /// That tensor, computed again. From any of autograd's threads.
  at::Tensor take(size_t place);

 private:
  // An input as it was: without its graph, which is not ours to hold.
  struct Input {
    at::Tensor tensor;
    bool learns;
    int64_t version;
    bool changed_by_function = false;
  };
  struct Dropped {
    std::vector<int64_t> sizes;
    at::ScalarType type;
  };
  struct Made {
    at::Tensor tensor;
    int64_t version = 0;
  };
  class Remaking;

  std::vector<at::Tensor> inputs() const;
  void compute_again();
  void compute_until_enough(const std::vector<at::Tensor>& inputs);
  void check_like_before(size_t place) const;

  const RecomputedPart part_;  // without its inputs
  std::vector<Input> inputs_;
  GeneratorStates generators_;  // none where random numbers are not to be kept
  const AutocastState autocast_;
  std::vector<Dropped> dropped_;
  std::vector<Made> made_;
};

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
