#include "trainer/loop/not_finite.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

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
              "lower optim.lr or set train.clip_norm; the last good checkpoint is kept");
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
      "look at these samples, lower optim.lr or set train.clip_norm; the last good checkpoint is kept");
}

}  // namespace lockstep::train
