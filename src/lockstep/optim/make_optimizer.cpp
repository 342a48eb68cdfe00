// The optimisers that a config can name.
#include <functional>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"

namespace lockstep {

namespace {

using Maker = std::function<std::unique_ptr<Optimizer>(const OptimSettings&, std::vector<at::Tensor>)>;

std::unique_ptr<Optimizer> make_sgd(const OptimSettings& s, std::vector<at::Tensor> params) {
  const SgdOptions options{
      .lr = s.lr, .momentum = s.momentum, .weight_decay = s.weight_decay, .nesterov = s.nesterov};
  return std::make_unique<Sgd>(std::move(params), options);
}

Maker make_adam(bool decoupled) {
  return [decoupled](const OptimSettings& s, std::vector<at::Tensor> params) {
    const AdamOptions options{.lr = s.lr,
                              .beta1 = s.betas[0],
                              .beta2 = s.betas[1],
                              .eps = s.eps,
                              .weight_decay = s.weight_decay,
                              .decoupled_weight_decay = decoupled};
    return std::make_unique<Adam>(std::move(params), options);
  };
}

const std::map<std::string, Maker> kMakers = {
    {"sgd", make_sgd},
    {"adam", make_adam(false)},
    {"adamw", make_adam(true)},
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimSettings& settings, std::vector<at::Tensor> params) {
  const auto maker = kMakers.find(settings.name);
  if (maker == kMakers.end()) {
    throw InputError(format("there is no optimiser \"{}\"", settings.name), "optim.name",
                     "use sgd, adam or adamw");
  }
  return maker->second(settings, std::move(params));
}

}  // namespace lockstep
