// A pole to be balanced: no data set, and the first task of reinforcement learning that anybody tries.
#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/data/table_set.h"
#include "lockstep/tasks/cart_pole_actor.h"

namespace lockstep::tasks {
namespace {

class CartPoleTask : public Task {
 public:
  TaskData data(const TaskConfig& settings, const NodeShare&) override {
    method_ = policy_method(settings.task.options);
    TaskData data;
    data.input_shape = {CartPole::kNumbers};
    data.class_names = {"left", "right"};
    data.train =
        std::make_shared<TableSet>(at::zeros({2, CartPole::kNumbers}), at::zeros({2, Packed::columns}));
    return data;
  }

  std::unique_ptr<Actor> actor(const TaskConfig& settings, const ActingRank& rank) const override {
    return std::make_unique<CartPoleActor>(method_, settings.seed, rank);
  }

  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override {
    const auto outputs = static_cast<int64_t>(data.class_names.size()) + 1;
    return make_model(settings.model, "mlp", data.input_shape, outputs);
  }

  at::Tensor loss(const at::Tensor& output, const at::Tensor& target,
                  const LossOptions& options) const override {
    return policy_loss(method_, output, target, options.reduction);
  }

  std::shared_ptr<const Dataset> inputs(const TaskConfig&, const TaskData&,
                                        const std::string&) const override {
    throw InputError("cartpole acts: it has no samples to tell the classes of", "task.name",
                     "`lockstep eval` plays 100 episodes with a checkpoint");
  }

 private:
  PolicyMethod method_;
};

}  // namespace

LOCKSTEP_TASK(
    cartpole, .help = "no data: a pole to be balanced, by acting; its `options` are in docs/acting.md",
    .reads = {"options.method", "options.environments", "options.steps", "options.passes", "options.gamma",
              "options.lambda", "options.clip", "options.entropy", "options.value", "options.solved"},
    .make = [] { return std::make_unique<CartPoleTask>(); })

}  // namespace lockstep::tasks
