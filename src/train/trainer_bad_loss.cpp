// A loss that is no number: which rank, which step, which samples.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "train/trainer.h"

namespace lockstep::train {

void Trainer::report_bad_loss() {
  nlohmann::json mine;
  if (const auto& bad = losses_.bad()) {
    mine = {{"step", bad->step}, {"loss", std::to_string(bad->loss)}, {"indices", bad->indices}};
  }
  nlohmann::json worst;
  size_t rank = 0, number = 0;
  for (const auto& text : team_.all_gather(mine.is_null() ? "" : mine.dump())) {
    const size_t of = number++;
    if (text.empty()) continue;
    const auto json = nlohmann::json::parse(text);
    if (!worst.is_null() && worst["step"] <= json["step"]) continue;
    worst = json;
    rank = of;
  }
  std::vector<std::string> samples;
  for (const auto& index : worst["indices"]) samples.push_back(index.dump());
  throw Error(
      format("the loss is {} at step {}", worst["loss"].get<std::string>(), worst["step"].get<int64_t>()),
      format("epoch {}, rank {}, samples {}", state_.epoch, rank, join(samples, ", ")),
      "look at these samples, lower optim.lr or set train.clip_norm; the last good checkpoint is kept");
}

}  // namespace lockstep::train
