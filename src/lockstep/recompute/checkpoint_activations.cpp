#include "lockstep/recompute/checkpoint_activations.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::recompute {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;
using Root = decltype(torch::autograd::NodeTask::fn_);  // held in one way or the other, by version

// libtorch's saved-tensor hooks, which it offers only to Python, for C++.

// Makes the hooks for each tensor that autograd keeps in this thread.
using MakeHooks = std::function<std::unique_ptr<SavedVariableHooks>()>;
thread_local const MakeHooks* make_hooks = nullptr;

// Around the engine that was there, which goes on to do all work.
template <class Base>
class EngineWrapper : public Base {
 protected:
  explicit EngineWrapper(Base& worker) : worker_(worker) {}
  Base& worker_;
};

// Passes on what libtorch has since 2.15.
template <class Base>
class NodeHooksEngine : public EngineWrapper<Base> {
 protected:
  using EngineWrapper<Base>::EngineWrapper;
};
template <class Base>
requires requires(Base& engine) {
  engine.get_node_creation_hooks();
}
class NodeHooksEngine<Base> : public EngineWrapper<Base> {
 public:
  decltype(std::declval<Base&>().get_node_creation_hooks()) get_node_creation_hooks() override {
    return this->worker_.get_node_creation_hooks();
  }

 protected:
  using EngineWrapper<Base>::EngineWrapper;
};

// Autograd asks its engine for hooks. This one has them.
class EngineWithHooks : public NodeHooksEngine<Engine> {
 public:
  explicit EngineWithHooks(Engine& worker) : NodeHooksEngine(worker) {}

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return make_hooks ? (*make_hooks)() : worker_.get_default_saved_variable_hooks();
  }
  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                        bool create_graph, bool accumulate_grad, const edge_list& outputs) override {
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

// Again where another engine has taken its place: libtorch_python, loaded later, brings one of its own. One
// that was wrapped lives as long as the process, as libtorch's own.
void install_engine() {
  static std::atomic<Engine*> with_hooks = nullptr;
  static std::mutex mutex;
  if (&Engine::get_default_engine() == with_hooks) return;
  const std::lock_guard lock(mutex);
  if (&Engine::get_default_engine() == with_hooks) return;
  with_hooks = new EngineWithHooks(Engine::get_default_engine());
  torch::autograd::set_default_engine_stub([]() -> Engine& { return *with_hooks; });
}

// While it lives, these hooks apply in this thread.
class HooksGuard {
 public:
  explicit HooksGuard(MakeHooks hooks) : hooks_(std::move(hooks)), before_(make_hooks) {
    install_engine();
    make_hooks = &hooks_;
  }
  ~HooksGuard() { make_hooks = before_; }
  HooksGuard(HooksGuard&&) = delete;

 private:
  const MakeHooks hooks_;
  const MakeHooks* const before_;
};

// What a computation depends on besides its inputs: random numbers, buffers and autocast. Each function keeps
// what is there now and returns what restores it.

using Restore = std::function<void()>;

bool is_on_gpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda();
}

// Of the CPU, and of the devices where these tensors are.
std::vector<at::Generator> generators_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Generator> generators{at::globalContext().defaultGenerator(at::kCPU)};
  std::set<at::DeviceIndex> seen;
  for (const auto& tensor : tensors)
    if (is_on_gpu(tensor) && seen.insert(tensor.device().index()).second)
      generators.push_back(at::globalContext().defaultGenerator(tensor.device()));
  return generators;
}

Restore keep_generators(const std::vector<at::Generator>& generators) {
  std::vector<std::pair<at::Generator, at::Tensor>> kept;
  for (auto generator : generators) {
    const std::lock_guard lock(generator.mutex());
    kept.emplace_back(generator, generator.get_state());
  }
  return [kept] {
    for (auto [generator, state] : kept) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  };
}

// Such as BatchNorm's statistics. variable_data(): autograd may have kept a buffer, and must not see this.
Restore keep_buffers(const std::shared_ptr<torch::nn::Module>& module) {
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;
  if (module)
    for (const auto& buffer : module->buffers())
      if (buffer.defined()) kept.emplace_back(buffer, buffer.variable_data().clone());
  return [kept] {
    for (const auto& [buffer, before] : kept) buffer.variable_data().copy_(before);
  };
}

// Without `caches` no casts of weights are kept afterwards: those are the whole process's, and another thread
// may be within a forward.
Restore keep_autocast(bool on_gpu, bool caches) {
  struct State {
    at::DeviceType type;
    bool enabled;
    at::ScalarType dtype;
  };
  std::vector<State> kept;
  for (const auto type : {at::kCPU, at::kCUDA})
    if (type == at::kCPU || on_gpu)
      kept.push_back({type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
  return [kept, caches] {
    for (const auto& [type, enabled, dtype] : kept) {
      at::autocast::set_autocast_enabled(type, enabled);
      at::autocast::set_autocast_dtype(type, dtype);
    }
    at::autocast::set_autocast_cache_enabled(caches);
  };
}

// Restores states when told, and in its destructor at the latest: there it drops errors, because an exception
// is under way that says more.
class RestoreAtEnd {
 public:
  explicit RestoreAtEnd(std::vector<Restore> states) : states_(std::move(states)) {}
  ~RestoreAtEnd() {
    while (!states_.empty()) {
      try {
        restore();
      } catch (...) {
      }
    }
  }
  RestoreAtEnd(RestoreAtEnd&&) = delete;

  void restore() {
    while (!states_.empty()) {
      const auto state = std::move(states_.back());
      states_.pop_back();
      state();
    }
  }

 private:
  std::vector<Restore> states_;
};

// Of the inputs and the module: where it computes.
std::vector<at::Tensor> tensors_of(const RecomputedPart& part) {
  auto tensors = part.inputs;
  if (!part.module) return tensors;
  for (auto& parameter : part.module->parameters()) tensors.push_back(std::move(parameter));
  return tensors;
}

// Backward runs in a thread for each device. The second computation draws from generators that all threads
// share, such as the CPU's, so only one may run at a time, whatever its region. It may run a backward of its
// own, in this thread only.
std::recursive_mutex& turn() {
  static std::recursive_mutex mutex;
  return mutex;
}

constexpr const char* kWhere = "checkpoint_activations";

// Thrown out of the computation once all dropped tensors are there: the rest is not needed.
struct StopRecompute {};

// Represents a tensor that is kept in autograd's graph of the second computation.
class KeepHooks : public SavedVariableHooks {
 public:
  explicit KeepHooks(std::function<void(const at::Tensor&)> keep) : keep_(std::move(keep)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.detach();
    keep_(tensor_);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  std::function<void(const at::Tensor&)> keep_;
  at::Tensor tensor_;
};

// A part of a forward whose activations are dropped, and computed again when backward asks for the first.
class Region {
 public:
  explicit Region(RecomputedPart part) {
    const auto tensors = tensors_of(part);
    generators_ = generators_of(tensors);
    on_gpu_ = std::ranges::any_of(tensors, is_on_gpu);
    first_time_ = {keep_generators(generators_), keep_autocast(on_gpu_, /*caches=*/false)};
    for (const auto& input : std::exchange(part.inputs, {})) {
      if (input.defined())
        inputs_.push_back({input.detach(), input.requires_grad(), input._version()});
      else
        inputs_.push_back({input, false, 0});
    }
    part_ = std::move(part);
  }

  void end_first_time() {
    for (auto& input : inputs_)
      input.changed_by_function = input.tensor.defined() && input.tensor._version() != input.version;
  }

  size_t drop(const at::Tensor& tensor) {
    dropped_.push_back({tensor.sizes().vec(), tensor.scalar_type()});
    return dropped_.size() - 1;
  }

  // That tensor, computed again. From any of autograd's threads.
  at::Tensor take(size_t place) {
    const std::lock_guard lock(turn());
    if (place >= made_.size() || !made_[place].tensor.defined()) compute_again();
    check_like_before(place);
    return std::exchange(made_[place], {}).tensor;
  }

 private:
  // An input as it was: without its graph, which is not ours to hold.
  struct Input {
    at::Tensor tensor;
    bool learns;
    int64_t version;
    bool changed_by_function = false;
  };
  struct DroppedTensor {
    std::vector<int64_t> sizes;
    at::ScalarType type;
  };
  struct RecomputedTensor {
    at::Tensor tensor;
    int64_t version = 0;
  };

  std::vector<at::Tensor> inputs() const {
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto& input = inputs_[i];
      if (input.tensor.defined() && input.tensor._version() != input.version)
        throw Error(
            format("input {} was changed in place {}, so it cannot be used to recompute the activations", i,
                   input.changed_by_function ? "by the function" : "after the forward"),
            kWhere, input.changed_by_function ? "change a copy instead" : "pass a copy, or change a copy");
      inputs.push_back(input.tensor.defined() ? input.tensor.detach().requires_grad_(input.learns)
                                              : at::Tensor());
    }
    return inputs;
  }

  void compute_again() {
    made_.clear();
    const auto inputs = this->inputs();
    RestoreAtEnd before({keep_buffers(part_.module), keep_generators(generators_),
                         keep_autocast(on_gpu_, at::autocast::is_autocast_cache_enabled())});
    for (const auto& restore : first_time_) restore();
    recompute_dropped(inputs);
    before.restore();
  }

  // Takes what the second computation keeps, in its order.
  void recompute_dropped(const std::vector<at::Tensor>& inputs) {
    const torch::AutoGradMode with_graph(true);
    const auto keep = [this](const at::Tensor& tensor) {
      if (made_.size() == dropped_.size()) return;
      made_.push_back({tensor, tensor._version()});
      if (made_.size() == dropped_.size()) throw StopRecompute();
    };
    const HooksGuard hooks([&] { return std::make_unique<KeepHooks>(keep); });
    try {
      part_.compute(inputs);
    } catch (const StopRecompute&) {
    }
  }

  void check_like_before(size_t place) const {
    const char* same = "make the function depend only on its inputs and on libtorch's random generators";
    if (place >= made_.size())
      throw Error(format("recomputed, the function kept {} tensors for backward, but {} the first time",
                         made_.size(), dropped_.size()),
                  kWhere, same);
    const auto& [tensor, version] = made_[place];
    const auto& [sizes, type] = dropped_[place];
    if (tensor.sizes() != sizes || tensor.scalar_type() != type)
      throw Error(format("recomputed, tensor {} that backward needs is {} {}, but was {} {} the first time",
                         place, c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()),
                         c10::toString(type), c10::str(at::IntArrayRef(sizes))),
                  kWhere, same);
    if (tensor._version() != version)
      throw Error(format("tensor {} that backward needs was changed in place by the function", place), kWhere,
                  "change a copy instead");
  }

  RecomputedPart part_;  // without its inputs
  std::vector<Input> inputs_;
  std::vector<at::Generator> generators_;
  bool on_gpu_ = false;
  std::vector<Restore> first_time_;
  std::vector<DroppedTensor> dropped_;
  std::vector<RecomputedTensor> made_;
};

// Replaces a tensor that was dropped in autograd's graph.
class RecomputeHooks : public SavedVariableHooks {
 public:
  explicit RecomputeHooks(std::shared_ptr<Region> region) : region_(std::move(region)) {}
  void call_pack_hook(const at::Tensor& tensor) override { place_ = region_->drop(tensor); }
  at::Tensor call_unpack_hook() override { return region_->take(place_); }

 private:
  std::shared_ptr<Region> region_;
  size_t place_ = 0;
};

}  // namespace

struct ActivationDropper::State {
  std::shared_ptr<Region> region;
  HooksGuard hooks{[this] { return std::make_unique<RecomputeHooks>(region); }};

  ~State() { region->end_first_time(); }
};

ActivationDropper::ActivationDropper(RecomputedPart part) {
  if (!torch::GradMode::is_enabled() || make_hooks) return;
  in_force_.reset(new State{std::make_shared<Region>(std::move(part))});
}

ActivationDropper::~ActivationDropper() = default;

}  // namespace lockstep::recompute
