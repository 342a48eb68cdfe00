#include "trainer/loop/same_bits.h"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/train/resumable.h"

namespace lockstep::train {
namespace {

struct Named {
  std::string name;
  at::Tensor tensor;
};

std::vector<Named> tensors_to_check(const torch::nn::Module& net, const Optimizer& optimizer) {
  std::vector<Named> all;
  std::map<const void*, std::string> names;  // of what the optimiser steps
  for (const auto& item : net.named_parameters()) {
    all.push_back({"parameter " + item.key(), item.value()});
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  for (const auto& [index, state] : items(optimizer.held_state())) {
    const auto& param = optimizer.parameters().at(static_cast<size_t>(as_int(index, "state")));
    for (const auto& [key, value] : items(state)) {
      if (value.isTensor())
        all.push_back(
            {format("the optimiser's {} of {}", as_string(key, "state"), names[param.unsafeGetTensorImpl()]),
             value.toTensor()});
    }
  }
  std::erase_if(all, [](const Named& one) { return !one.tensor.is_floating_point(); });
  return all;
}

// The name of the first that holds a NaN or an infinity; empty where all is well. A sum keeps either, and is
// one pass over the memory; one that merely is too large is looked at again.
std::string first_not_finite(const std::vector<Named>& all) {
  if (all.empty()) return "";
  std::vector<at::Tensor> sums;
  for (const auto& one : all)
    sums.push_back(one.tensor.detach().sum(torch::kFloat64).to(all[0].tensor.device()));
  const auto values = torch::stack(sums).to(torch::kCPU);
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isfinite(values.data_ptr<double>()[i])) continue;
    if (!torch::isfinite(all[i].tensor).all().item<bool>()) return all[i].name;
  }
  return "";
}

}  // namespace

void refuse_not_finite(const Team& team, const Learner& learner, const TrainingState& state) {
  const torch::NoGradGuard no_grad;
  const auto mine = first_not_finite(tensors_to_check(learner.model->net(), *learner.optimizer));
  std::vector<double> found{mine.empty() ? 0.0 : 1.0};
  team.sum(found);
  if (found[0] == 0) return;
  const auto all = team.all_gather(mine);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& name) { return !name.empty(); });
  throw Error(format("{} is not finite after step {}, so there is no checkpoint of it", *first, state.step),
              format("epoch {}, rank {}", state.epoch, first - all.begin()),
              "lower optim.lr or set train.clip_norm; the last good checkpoint stays");
}

void report_bad_loss(const Team& team, const std::optional<BadLoss>& bad, const TrainingState& state) {
  nlohmann::json mine;
  if (bad) mine = {{"step", bad->step}, {"loss", std::to_string(bad->loss)}, {"indices", bad->indices}};
  nlohmann::json worst;
  size_t rank = 0, number = 0;
  for (const auto& text : team.all_gather(mine.is_null() ? "" : mine.dump())) {
    const size_t of = number++;
    if (text.empty()) continue;
    const auto json = nlohmann::json::parse(text);
    if (!worst.is_null() && worst["step"] <= json["step"]) continue;
    worst = json;
    rank = of;
  }
  constexpr size_t kMost = 5;
  const auto& indices = worst["indices"];
  std::vector<std::string> samples;
  for (size_t i = 0; i < std::min(indices.size(), kMost); ++i) samples.push_back(indices[i].dump());
  if (indices.size() > kMost) samples.push_back(format("... ({} in the batch)", indices.size()));
  throw Error(
      format("the loss is {} at step {}", worst["loss"].get<std::string>(), worst["step"].get<int64_t>()),
      format("epoch {}, rank {}, samples {}", state.epoch, rank, base::join(samples, ", ")),
      "look at these samples, lower optim.lr or set train.clip_norm; the last good checkpoint stays");
}

namespace {

bool is_required(const Setup& setup) {
  return setup.settings.train.exact == SameBits::required;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw InputError(what, "train.exact: required", hint + ", or set train.exact to off");
}

std::string other_world(const Setup& setup, const Tree& extras, const Learner& learner) {
  const auto world = as_int(get(extras, "world"), "world");
  const auto here = setup.mesh->data().world();
  if (world == here) return "";
  return format(
      "the run resumes at world size {} (was {}): {}the bits will differ from a run at world size {}{}", here,
      world, learner.source->is_shared() ? "each sample of the epoch is still used once, but " : "", world,
      setup.settings.train.as_world > 0 ? "" : format(" (train.as_world: {} keeps them)", world));
}

// gloo's, or the name of what sums in another order.
std::string order_of_sums(const Team& team) {
  if (!team.group()) return "none";
  auto name = team.group()->getBackend(team.device().type())->getBackendName();
  if (name == "shared" || (name == "mpi" && team.world() == 2)) return "gloo";
  for (const auto& algorithm : all_reduce_algorithms()) {
    if (algorithm.name == name && algorithm.has_bits_of_gloo(team.world())) return "gloo";
  }
  return name;
}

std::string device_kind(const Team& team) {
  const auto device = team.device();
  return device.is_cuda() ? comm::cuda().device_name(device.index()) : "a CPU";
}

// What the bits depend on besides the machine: a checkpoint's key, what it is here, and how a message says
// that it was different.
struct Fact {
  const char* key;
  std::string here;
  const char* was;
};

std::vector<Fact> facts_of(const Team& team) {
  return {{"threads", std::to_string(at::get_num_threads()), "computed with threads per rank:"},
          {"device", device_kind(team), "computed on"},
          {"sums", order_of_sums(team), "summed in the order of"}};
}

std::vector<std::string> unlike_run(const Team& team, const Tree& extras, MissingFact unrecorded) {
  std::vector<std::string> unlike;
  for (const auto& [key, here, was] : facts_of(team)) {
    const auto there = find(extras, key);
    if (!there || there->isNone()) {
      if (unrecorded == MissingFact::differs) unlike.push_back(format("written without recording {}", key));
    } else if (const auto before = as_string(*there, key); before != here) {
      unlike.push_back(format("{} {}, but this run uses {}", was, before, here));
    }
  }
  return unlike;
}

}  // namespace

void put_run_facts(const Team& team, const Tree& dict) {
  for (const auto& fact : facts_of(team)) put(dict, fact.key, fact.here);
}

void compare_bits(const Setup& setup, const Tree& checkpoint, const Learner& learner) {
  const bool required = is_required(setup);
  const auto unrecorded = required ? MissingFact::differs : MissingFact::passes;
  const auto extras = find(checkpoint, kTrainerKey);
  if (!extras && required)
    refuse("the checkpoint is not from lockstep and does not record what its bits depend on",
           "start a new run");
  if (!extras) return;
  const auto world = other_world(setup, *extras, learner);
  if (required && !world.empty()) refuse(world, "start that many ranks, or set train.as_world");
  auto unlike = unlike_machine(*extras, unrecorded);
  const auto more = unlike_run(*setup.team, *extras, unrecorded);
  if (world.empty()) unlike.insert(unlike.end(), more.begin(), more.end());
  if (required && !unlike.empty())
    refuse("the run cannot resume with the same bits: the checkpoint was " + base::join(unlike, "; "),
           "resume on the machine and with the settings that wrote it");
  for (const auto& one : unlike)
    log::info(format("the checkpoint was {}: from here on the bits may differ", one));
  if (!world.empty()) log::warning(world);
}

void compare_ranks(const Setup& setup) {
  if (setup.settings.train.as_world == 0 && !is_required(setup)) return;
  const auto all = setup.team->all_gather(format("{}, {}", processor(), device_kind(*setup.team)));
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  const auto what =
      format("the ranks run on different processors, so the bits differ: rank 0 on {}, rank {} on {}", all[0],
             other - all.begin(), *other);
  if (is_required(setup)) refuse(what, "request nodes of one kind");
  log::warning(what);
}

}  // namespace lockstep::train
