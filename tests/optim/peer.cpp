// The C++ half of tests/e2e/test_optim.py: does what Python's .pt file asks for and writes one.

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdlib>

#include "lockstep/checkpoint/pt.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/optim/torch_optimizer.h"

namespace lockstep {
namespace {

double real(const Tree& dict, const char* key, double otherwise) {
  const auto value = find(dict, key);
  return value ? as_double(*value, key) : otherwise;
}

int64_t whole(const Tree& dict, const char* key, int64_t otherwise) {
  const auto value = find(dict, key);
  return value ? as_int(*value, key) : otherwise;
}

OptimSettings optim_settings(const Tree& given) {
  OptimSettings s;
  s.name = as_string(get(given, "name"), "name");
  s.lr = real(given, "lr", s.lr);
  s.momentum = real(given, "momentum", 0);
  s.weight_decay = real(given, "weight_decay", 0);
  s.nesterov = whole(given, "nesterov", 0) != 0;
  s.betas = {real(given, "beta1", s.betas[0]), real(given, "beta2", s.betas[1])};
  s.eps = real(given, "eps", s.eps);
  return s;
}

ScheduleSettings schedule_settings(const Tree& given) {
  ScheduleSettings s;
  s.name = as_string(get(given, "name"), "name");
  const std::pair<const char*, double*> reals[] = {{"gamma", &s.gamma},
                                                   {"eta_min", &s.eta_min},
                                                   {"max_lr", &s.max_lr},
                                                   {"pct_start", &s.pct_start},
                                                   {"base_momentum", &s.base_momentum},
                                                   {"max_momentum", &s.max_momentum},
                                                   {"div_factor", &s.div_factor},
                                                   {"final_div_factor", &s.final_div_factor},
                                                   {"start_factor", &s.start_factor},
                                                   {"end_factor", &s.end_factor},
                                                   {"factor", &s.factor},
                                                   {"threshold", &s.threshold},
                                                   {"min_lr", &s.min_lr},
                                                   {"eps", &s.eps}};
  const std::pair<const char*, int64_t*> wholes[] = {
      {"step_size", &s.step_size},       {"T_max", &s.T_max},
      {"total_steps", &s.total_steps},   {"total_iters", &s.total_iters},
      {"warmup_steps", &s.warmup_steps}, {"patience", &s.patience},
      {"cooldown", &s.cooldown}};
  const std::pair<const char*, std::string*> texts[] = {
      {"anneal_strategy", &s.anneal_strategy}, {"mode", &s.mode}, {"threshold_mode", &s.threshold_mode}};
  for (const auto& [key, value] : reals) *value = real(given, key, *value);
  for (const auto& [key, value] : wholes) *value = whole(given, key, *value);
  for (const auto& [key, value] : texts)
    if (const auto text = find(given, key)) *value = as_string(*text, key);
  s.three_phase = whole(given, "three_phase", s.three_phase) != 0;
  s.cycle_momentum = whole(given, "cycle_momentum", s.cycle_momentum) != 0;
  return s;
}

std::vector<at::Tensor> leaves(const Tree& list) {
  std::vector<at::Tensor> params;
  for (const auto& param : elements(list)) params.push_back(param.toTensor().clone().requires_grad_());
  return params;
}

void set_grads(std::vector<at::Tensor>& params, const Tree& grads) {
  const auto given = elements(grads);
  for (size_t i = 0; i < params.size(); ++i)
    params[i].mutable_grad() = given[i].isNone() ? at::Tensor() : given[i].toTensor().clone();
}

Tree tensors(const std::vector<at::Tensor>& params) {
  auto list = make_list();
  for (const auto& param : params) append(list, param);
  return list;
}

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(const std::string& name, double lr,
                                                         const std::vector<at::Tensor>& params) {
  namespace optim = torch::optim;
  if (name == "torch.SGD")
    return std::make_unique<optim::SGD>(params, optim::SGDOptions(lr).momentum(0.9).nesterov(true));
  if (name == "torch.Adam")
    return std::make_unique<optim::Adam>(params, optim::AdamOptions(lr).amsgrad(true));
  if (name == "torch.AdamW")
    return std::make_unique<optim::AdamW>(params, optim::AdamWOptions(lr).betas({0.8, 0.95}));
  if (name == "torch.RMSprop")
    return std::make_unique<optim::RMSprop>(params, optim::RMSpropOptions(lr).momentum(0.5).centered(true));
  return std::make_unique<optim::Adagrad>(params, optim::AdagradOptions(lr).lr_decay(0.01));
}

/// An optimizer of libtorch's behind lockstep's, which owns it here.
class OwnTorchOptimizer : std::unique_ptr<torch::optim::Optimizer>, public TorchOptimizer {
 public:
  explicit OwnTorchOptimizer(std::unique_ptr<torch::optim::Optimizer> made)
      : std::unique_ptr<torch::optim::Optimizer>(std::move(made)), TorchOptimizer(**this) {}
};

std::unique_ptr<Optimizer> optimizer_of(const OptimSettings& settings,
                                        const std::vector<at::Tensor>& params) {
  if (!settings.name.starts_with("torch.")) return make_optimizer(settings, params);
  return std::make_unique<OwnTorchOptimizer>(torch_optimizer(settings.name, settings.lr, params));
}

/// {"optim", "params", "grads": [per step [per parameter]], "clip", "scaler", "state"} -> the same.
Tree run_optimizer(const Tree& given) {
  auto params = leaves(get(given, "params"));
  const auto optimizer = optimizer_of(optim_settings(get(given, "optim")), params);
  GradScaler scaler(at::kCPU, {.init_scale = 1024, .growth_interval = 3});
  const auto scaled = whole(given, "scaler", 0) != 0;
  if (whole(given, "fused", 0) != 0) optimizer->fuse();
  if (const auto state = find(given, "state")) optimizer->load_state_dict(*state);
  auto norms = make_list(), scales = make_list();
  for (const auto& grads : elements(get(given, "grads"))) {
    set_grads(params, grads);
    if (scaled) scaler.unscale_(*optimizer);
    if (const auto clip = real(given, "clip", 0); clip > 0) append(norms, clip_grad_norm_(params, clip));
    if (scaled) {
      scaler.step(*optimizer);
      scaler.update();
      append(scales, scaler.current_scale());
      GradScaler next(at::kCPU);  // as a run that is resumed here
      next.load_state_dict(scaler.state_dict());
      scaler = next;
    } else {
      optimizer->step();
    }
  }
  return make_dict({{"params", tensors(params)},
                    {"state", optimizer->state_dict()},
                    {"norms", norms},
                    {"scales", scales},
                    {"scaler", scaler.state_dict()}});
}

SgdOptions sgd_options(const OptimSettings& s) {
  return {.lr = s.lr, .momentum = s.momentum, .weight_decay = s.weight_decay, .nesterov = s.nesterov};
}

AdamOptions adam_options(const OptimSettings& s) {
  return {.lr = s.lr,
          .beta1 = s.betas[0],
          .beta2 = s.betas[1],
          .eps = s.eps,
          .weight_decay = s.weight_decay,
          .decoupled_weight_decay = s.name == "adamw"};
}

/// Groups of {"optim", "count"} over the parameters in their order.
template <typename Options>
std::vector<ParameterGroup<Options>> grouped(const Tree& groups, const std::vector<at::Tensor>& params,
                                             Options (*options_of)(const OptimSettings&)) {
  std::vector<ParameterGroup<Options>> all;
  auto next = params.begin();
  for (const auto& group : elements(groups)) {
    const auto end = next + whole(group, "count", 0);
    all.push_back({{next, end}, options_of(optim_settings(get(group, "optim")))});
    next = end;
  }
  return all;
}

std::unique_ptr<Optimizer> grouped_optimizer(const Tree& groups, const std::vector<at::Tensor>& params) {
  const auto name = as_string(get(get(elements(groups).at(0), "optim"), "name"), "name");
  if (name == "sgd") return std::make_unique<Sgd>(grouped(groups, params, sgd_options));
  return std::make_unique<Adam>(grouped(groups, params, adam_options));
}

/// {"groups", "schedule", "steps", "params", "grads", "metrics", "break_at", "state", "schedule_state"} ->
/// parameters, both states and before each step all groups' rates and momenta.
Tree train_groups(const Tree& given) {
  auto params = leaves(get(given, "params"));
  const auto groups = get(given, "groups");
  const auto settings = schedule_settings(get(given, "schedule"));
  const auto steps = whole(given, "steps", 0);
  auto optimizer = grouped_optimizer(groups, params);
  auto schedule = make_schedule(settings, *optimizer, steps, steps);
  if (const auto state = find(given, "state")) optimizer->load_state_dict(*state);
  if (const auto state = find(given, "schedule_state")) schedule->load_state_dict(*state);
  const auto metrics = elements(get(given, "metrics"));
  auto rates = make_list(), momenta = make_list();
  size_t i = 0;
  for (const auto& grads : elements(get(given, "grads"))) {
    for (size_t group = 0; group < optimizer->group_count(); ++group) {
      append(rates, optimizer->lr(group));
      append(momenta, optimizer->momentum(group));
    }
    if (static_cast<int64_t>(i) == whole(given, "break_at", -1)) {
      const auto optimizer_state = optimizer->state_dict(), schedule_state = schedule->state_dict();
      schedule.reset();
      optimizer = grouped_optimizer(groups, params);
      schedule = make_schedule(settings, *optimizer, steps, steps);
      optimizer->load_state_dict(optimizer_state);
      schedule->load_state_dict(schedule_state);
    }
    set_grads(params, grads);
    optimizer->step();
    const auto metric = schedule->wants_metric() ? std::optional(metrics.at(i).toDouble()) : std::nullopt;
    schedule->step(metric);
    ++i;
  }
  return make_dict({{"params", tensors(params)},
                    {"state", optimizer->state_dict()},
                    {"schedule", schedule->state_dict()},
                    {"rates", rates},
                    {"momenta", momenta}});
}

TEST(Peer, DoesWhatPythonAsks) {
  const char* input = std::getenv("LOCKSTEP_PEER_IN");
  const char* output = std::getenv("LOCKSTEP_PEER_OUT");
  if (!input || !output) GTEST_SKIP() << "run by tests/e2e/test_optim.py";
  auto results = make_dict();
  for (const auto& [name, given] : items(read_pt(input)))
    put(results, name, find(given, "groups") ? train_groups(given) : run_optimizer(given));
  write_pt(output, results);
}

}  // namespace
}  // namespace lockstep
