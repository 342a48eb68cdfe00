#include "lockstep/recompute/keeper.h"

#include <torch/csrc/autograd/engine.h>

#include <mutex>

namespace lockstep::recompute {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::variable_list;
using Root = decltype(torch::autograd::NodeTask::fn_);  // held in one way or the other, by version

thread_local Keeper* in_force = nullptr;

// Autograd asks its engine for hooks. This one has them, and leaves all work to the engine that was there.
class EngineWithHooks : public Engine {
 public:
  explicit EngineWithHooks(Engine& worker) : worker_(worker) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return in_force ? in_force->hooks() : worker_.get_default_saved_variable_hooks();
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

 private:
  Engine& worker_;
};

Engine* with_hooks = nullptr;

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    with_hooks =
        new EngineWithHooks(Engine::get_default_engine());  // as long as the process, as libtorch's own
    torch::autograd::set_default_engine_stub([]() -> Engine& { return *with_hooks; });
  });
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
