#include "lockstep/train/learner.h"

#include "lockstep/train/task_memory.h"
#include "lockstep/train/trace_keeper.h"
#include "lockstep/zero/sharded_optimizer.h"

namespace lockstep::train {
namespace {

std::unique_ptr<Optimizer> make_optimizer_of(const Settings& settings, const Team& team,
                                             std::vector<at::Tensor> params) {
  if (!settings.optim.sharded || settings.train.mode != "ddp")
    return make_optimizer(settings.optim, std::move(params));
  return make_sharded_optimizer(settings.optim, std::move(params), team);
}

}  // namespace

Learner make_learner(const Setup& setup) {
  const auto& settings = setup.settings;
  const auto& team = *setup.team;
  Learner learner;
  learner.rounds = plan_rounds(settings, setup.data.train->size(), setup.mesh->data().world());
  learner.tracer = make_tracer(settings);
  const auto another = [&setup] { return setup.task->model(setup.settings, setup.data); };
  learner.model = make_trained_model(seeded_model(setup), *setup.mesh, settings,
                                     {.another = another, .tracer = learner.tracer});
  learner.optimizer = make_optimizer_of(settings, setup.mesh->data(), learner.model->parameters());
  learner.schedule =
      make_schedule(settings.schedule, *learner.optimizer, learner.rounds.total_steps, settings.train.epochs);
  if (settings.train.precision == "fp16") learner.scaler = std::make_unique<GradScaler>(team.device());
  learner.memory = remembered(setup);
  return learner;
}

}  // namespace lockstep::train
