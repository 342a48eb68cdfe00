#include "trainer/provoke/provoke.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/identify.h"

namespace lockstep::train {

namespace {

constexpr std::chrono::seconds kProvokedTimeout{5};  // in place of launch.timeout's 10 minutes

bool is_last(const Team& team) {
  return team.rank() + 1 == team.world();
}

at::Tensor ones(const Team& team, int64_t rows) {
  return at::ones({rows, 2}, at::TensorOptions().device(team.device()));
}

void all_reduce(const Team& team, int64_t rows) {
  std::vector<at::Tensor> tensors{ones(team, rows)};
  team.group()->allreduce(tensors)->wait();
}

void broadcast(const Team& team) {
  std::vector<at::Tensor> tensors{ones(team, 10)};
  team.group()->broadcast(tensors)->wait();
}

void shorten_timeout(config::Loaded& loaded) {
  if (loaded.origins.at("launch.timeout").kind == config::Origin::by_default)
    loaded.settings.launch.timeout = kProvokedTimeout;
}

// Like a rank that evaluates alone, or whose data is used up: it returns when the others have given up.
void skip_a_collective(const Team& team, const Settings& settings) {
  if (!is_last(team)) return all_reduce(team, 10);
  std::this_thread::sleep_for(settings.launch.timeout + kProvokedTimeout);
}

void differ_in_shape(const Team& team, const Settings&) {
  all_reduce(team, is_last(team) ? 5 : 10);
}

void differ_in_order(const Team& team, const Settings&) {
  if (is_last(team)) {
    all_reduce(team, 10);
    broadcast(team);
  } else {
    broadcast(team);
    all_reduce(team, 10);
  }
}

void look_for_nothing(config::Loaded& loaded) {
  loaded.settings.ddp.find_unused_parameters = false;
  loaded.settings.ddp.static_graph = false;
}

std::shared_ptr<Net> with_unused(std::shared_ptr<Net> net) {
  net->register_parameter("unused_branch", torch::zeros({3}));
  return net;
}

void synchronise_no_norm(config::Loaded& loaded) {
  loaded.settings.ddp.sync_batchnorm = false;
  loaded.settings.ddp.broadcast_buffers = false;
}

// A model of ours has no batch normalization: one over all that comes in.
struct NormedNet : Net {
  explicit NormedNet(std::shared_ptr<Net> inner) : net(register_module("net", std::move(inner))) {}
  torch::Tensor forward(const torch::Tensor& input) override {
    return net->forward(norm(input.flatten(1).unsqueeze(1)).view_as(input));
  }
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(1))};
  std::shared_ptr<Net> net;
};

std::shared_ptr<Net> with_norm(std::shared_ptr<Net> net) {
  return std::make_shared<NormedNet>(std::move(net));
}

double own_loss(const Team& team, double mean, const LossTrace& losses) {
  const auto all = team.all_gather(format("{:.4f}", losses.mean()));
  std::string each;
  for (size_t rank = 0; rank < all.size(); ++rank)
    each += format("{}{} on rank {}", rank ? ", " : "", all[rank], rank);
  log::warning(
      format("the logged loss of this epoch is only rank 0's: {}; their mean is {:.4f}", each, mean));
  return losses.mean();
}

void want_gpus(config::Loaded& loaded) {
  const auto gpus = launch::count_gpus(launch::current_environment());
  if (gpus.count == 0)
    throw InputError(
        "train.provoke: nccl_in_container needs a GPU, and this process sees none (" + gpus.because + ")",
        "train.provoke",
        "start on a GPU node; in a container with docker run --gpus all, or apptainer exec --nv");
  // an interface that the container does not have: NCCL finds no way to the other ranks
  ::setenv("NCCL_SOCKET_IFNAME", "=lockstep_none", 1);
  loaded.settings.launch.backend = "nccl";
}

}  // namespace

const std::vector<InjectedFault> kInjectedFaults = {
    {.name = "skipped_collective",
     .what = "after step 3 the last rank skips an all-reduce that the others call",
     .prepare = shorten_timeout,
     .after_step = skip_a_collective},
    {.name = "different_shape",
     .what = "after step 3 the last rank all-reduces 5 rows, the others 10",
     .prepare = shorten_timeout,
     .after_step = differ_in_shape},
    {.name = "different_order",
     .what = "after step 3 the last rank calls all-reduce and broadcast, the others broadcast and all-reduce",
     .prepare = shorten_timeout,
     .after_step = differ_in_order},
    {.name = "unused_parameter",
     .what = "the model has a parameter that no forward reaches, and find_unused_parameters is off",
     .prepare = look_for_nothing,
     .change = with_unused},
    {.name = "unsynced_batchnorm",
     .what = "the model has a batch normalization over each rank's own samples",
     .prepare = synchronise_no_norm,
     .change = with_norm},
    {.name = "local_loss", .what = "the logged loss of an epoch is only rank 0's", .shown_loss = own_loss},
    {.name = "nccl_in_container",
     .what = "NCCL gets a network interface that does not exist",
     .ranks = 1,
     .prepare = want_gpus}};

const InjectedFault* injected_fault(const Settings& settings) {
  const auto found = std::ranges::find(kInjectedFaults, settings.train.provoke, &InjectedFault::name);
  return found == kInjectedFaults.end() ? nullptr : &*found;
}

void prepare_fault(config::Loaded& loaded) {
  const auto* fault = injected_fault(loaded.settings);
  if (!fault) return;
  log::warning(format("train.provoke: {} is injected: {}", fault->name, fault->what));
  auto& name = loaded.settings.run.name;
  if (!name.ends_with("-" + fault->name)) name += "-" + fault->name;
  if (fault->prepare) fault->prepare(loaded);
}

void check_fault(const Settings& settings, const Team& team) {
  const auto* fault = injected_fault(settings);
  if (!fault || team.world() >= fault->ranks) return;
  throw InputError(
      format("train.provoke: {} needs {} ranks or more that share the data (got {})", fault->name,
             fault->ranks, team.world()),
      "train.provoke",
      format("start {0} ranks (--ranks {0}), with parallel.tensor and parallel.pipeline at 1", fault->ranks));
}

}  // namespace lockstep::train
