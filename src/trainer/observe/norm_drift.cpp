#include "trainer/observe/norm_drift.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/connect.h"

namespace lockstep::train {
namespace {

struct Statistics {
  std::vector<std::string> names;  // an entry for each number
  std::vector<at::Tensor> values;
};

Statistics statistics_of(const torch::nn::Module& module) {
  Statistics found;
  for (const auto& item : module.named_buffers()) {
    const auto& name = item.key();
    const bool running = name.ends_with("running_mean") || name.ends_with("running_var");
    if (!running || !item.value().defined()) continue;
    found.values.push_back(item.value().detach().to(torch::kCPU, torch::kFloat64).flatten());
    for (int64_t i = 0; i < item.value().numel(); ++i) found.names.push_back(format("{}[{}]", name, i));
  }
  return found;
}

}  // namespace

std::string norm_drift(const Team& team, const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  const auto own = statistics_of(module);
  if (own.values.empty() || team.world() == 1) return "";
  const auto all = torch::stack(team.all_gather(torch::cat(own.values)));
  const auto spread = all.amax(0) - all.amin(0);
  const auto worst = spread.argmax().item<int64_t>();
  if (!(spread[worst].item<double>() > 0)) return "";
  const auto low = all.select(1, worst).argmin().item<int64_t>();
  const auto high = all.select(1, worst).argmax().item<int64_t>();
  const auto in_job = [&](int64_t rank) { return comm::rank_in_job(team.group(), static_cast<int>(rank)); };
  return format(
      "batch normalisation is not synchronised: {} is {:.4f} on rank {}, {:.4f} on rank {}; rank 0's are "
      "saved\n"
      "  to do: set ddp.sync_batchnorm: true where a rank's batch is small",
      own.names[static_cast<size_t>(worst)], all[low][worst].item<double>(), in_job(low),
      all[high][worst].item<double>(), in_job(high));
}

}  // namespace lockstep::train
