#include "trainer/step/learner.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/zero/sharded_optimizer.h"
#include "trainer/provoke/provoke.h"
#include "trainer/setup/saved.h"

namespace lockstep::train {
namespace {

std::string kilobytes(double bytes) {
  return format("{:.1f} {}", bytes / (bytes < (1 << 20) ? 1 << 10 : 1 << 20),
                bytes < (1 << 20) ? "kB" : "MB");
}

// Collective.
std::string shared_memory_line(const Team& team, double own) {
  std::vector<double> sum{own}, ends{own, -own};
  team.sum(sum);
  team.max(ends);
  return format("optimiser state: {} of {} on this rank, {} to {} on {} ranks", kilobytes(own),
                kilobytes(sum[0]), kilobytes(-ends[1]), kilobytes(ends[0]), team.world());
}

std::unique_ptr<Optimizer> make_optimizer_of(const Settings& settings, const Team& team,
                                             const TrainedModel& model) {
  const auto groups = decay_groups(settings.optim, named_parameters(model));
  if (!settings.optim.sharded || settings.train.mode != TrainMode::ddp || team.world() == 1)
    return make_optimizer(groups);
  auto optimizer = make_sharded_optimizer(groups, team);
  log::info(shared_memory_line(team, state_bytes_of(*optimizer)));
  return optimizer;
}

void require_fused(Optimizer& optimizer, const OptimSettings& settings) {
  if (optimizer.fuse()) return;
  throw InputError(format("train.graph: the step of optimiser {} cannot be captured", settings.name),
                   "optim.name", "use sgd, adam or adamw, or set train.graph to false");
}

}  // namespace

std::vector<NamedParameter> named_parameters(const TrainedModel& model) {
  std::map<const void*, std::string> names;
  for (const auto& item : model.net().named_parameters())
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  std::vector<NamedParameter> named;
  for (const auto& parameter : model.parameters())
    named.emplace_back(names[parameter.unsafeGetTensorImpl()], parameter);
  return named;
}

double state_bytes_of(const Optimizer& optimizer) {
  int64_t bytes = 0;
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    if (optimizer.parameters()[i].requires_grad()) bytes += optimizer.state_bytes(i);
  }
  return static_cast<double>(bytes);
}

Learner make_learner(const Setup& setup) {
  const auto& settings = setup.settings;
  const auto& team = *setup.team;
  Learner learner;
  learner.source = make_sample_source(setup);
  // first: what a step uses is made on the stream that is captured
  if (settings.train.graph) learner.graph = comm::cuda().make_step_graph(team.device().index());
  learner.rounds = plan_rounds(settings, learner.source->samples(), setup.mesh->data().world());
  check_fault(settings, setup.mesh->data());
  const auto net = seeded_model(setup);
  learner.tracer = make_tracer(settings, net->parameters().size());
  learner.model = make_trained_model(net, *setup.mesh, settings,
                                     {.another = [&setup] { return task_model(setup); },
                                      .tracer = learner.tracer,
                                      .known_loss = setup.task->known_loss(),
                                      .class_weights = setup.data.class_weights});
  learner.optimizer = make_optimizer_of(settings, setup.mesh->data(), *learner.model);
  if (learner.graph) require_fused(*learner.optimizer, settings.optim);
  learner.schedule =
      make_schedule(settings.schedule, *learner.optimizer, learner.rounds.total_steps, settings.train.epochs);
  if (settings.train.precision == Precision::fp16)
    learner.scaler = std::make_unique<GradScaler>(team.device());
  learner.memory = remembered(setup);
  return learner;
}

}  // namespace lockstep::train
