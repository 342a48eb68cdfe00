#include "lockstep/recompute/keeper.h"

#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace lockstep::recompute {
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

bool has_keeper() {
  return in_force != nullptr;
}

}  // namespace lockstep::recompute
