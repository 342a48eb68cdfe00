#include "lockstep/parallel/data_parallel.h"

#include <torch/cuda.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/parallel/replicas/cpu_generator.h"
#include "lockstep/parallel/replicas/joined_graph.h"
#include "lockstep/parallel/replicas/replicas.h"

namespace lockstep {
namespace {

using parallel::DeviceShare;
using parallel::Order;

constexpr int kLogicalDevices = 2;

void check_devices(const std::vector<c10::Device>& devices) {
  if (devices.empty()) throw InputError("there are no devices", "data_parallel", "give one or more");
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  for (const auto& device : devices) {
    if (device.type() != devices.front().type() || !(device.is_cpu() || device.is_cuda()))
      throw InputError("the devices are of several kinds, or neither CPU nor CUDA", "data_parallel",
                       "give GPUs alone, or the CPU alone");
    if (device.is_cuda() && device.index() >= gpus)
      throw InputError(
          format("{} is not there: this process sees {} GPU{}", device.str(), gpus, gpus == 1 ? "" : "s"),
          "data_parallel", "give devices that are there, or ask the scheduler for more");
  }
}

void require_one_batch(const std::vector<at::Tensor>& whole) {
  int64_t samples = -1;
  for (const auto& tensor : whole) {
    if (tensor.dim() == 0) continue;
    if (samples >= 0 && tensor.size(0) != samples)
      throw InputError(format("the inputs have {} and {} samples: they cannot be split into the same parts",
                              samples, tensor.size(0)),
                       "data_parallel", "give tensors whose first dimension is the batch");
    samples = tensor.size(0);
  }
}

// A single device has the module itself.
std::vector<c10::Device> replicated(const std::vector<c10::Device>& devices) {
  return devices.size() > 1 ? devices : std::vector<c10::Device>();
}

}  // namespace

std::vector<c10::Device> visible_devices() {
  return devices_like(torch::cuda::is_available() ? c10::Device(at::kCUDA, 0) : c10::Device(at::kCPU), 0);
}

std::vector<c10::Device> devices_like(c10::Device first, int count) {
  if (first.is_cpu()) return std::vector<c10::Device>(count > 0 ? count : kLogicalDevices, first);
  const auto there = static_cast<int>(torch::cuda::device_count());
  const int wanted = count > 0 ? count : there;
  if (wanted > there)
    throw InputError(format("{} GPUs are wanted, and this process sees {}", wanted, there),
                     "data_parallel.devices", "ask for fewer, or 0 for all of them");
  std::vector<c10::Device> devices;
  for (int i = 0; i < wanted; ++i) devices.emplace_back(at::kCUDA, static_cast<c10::DeviceIndex>(i));
  return devices;
}

struct DataParallelCore::State {
  State(std::shared_ptr<torch::nn::Module> wrapped, std::vector<c10::Device> places, const MakeReplica& make)
      : module(std::move(wrapped)),
        devices(std::move(places)),
        threads(std::make_shared<parallel::DeviceThreads>(replicated(devices))),
        replicas(module, replicated(devices), make) {
    // nobody knows yet whether the model draws random numbers
    if (devices.front().is_cpu()) orders.fill(Order::one_by_one);
  }

  std::shared_ptr<torch::nn::Module> module;
  std::vector<c10::Device> devices;
  std::shared_ptr<parallel::DeviceThreads> threads;
  parallel::Replicas replicas;
  std::weak_ptr<void> pending;    // the last forward's backward
  std::array<Order, 2> orders{};  // in evaluation, in training

  void run_all(size_t count, const std::function<void(size_t)>& work);
};

// The CPU has one generator for all: devices that draw from it take turns, so that the same seed gives the
// same bits. Whether they do is seen, not asked.
void DataParallelCore::State::run_all(size_t count, const std::function<void(size_t)>& work) {
  auto& order = orders[module->is_training() ? 1 : 0];
  if (!devices.front().is_cpu()) return threads->run(count, work);
  const parallel::Draws draws;
  threads->run(count, work, order);
  const bool drew = draws.any();
  if (drew && order == Order::together)
    log::warning(
        "a model that drew no random numbers began to: what its devices drew at the same time "
        "will be other numbers in another run; from here on they take turns");
  order = drew ? Order::one_by_one : Order::together;
}

DataParallelCore::DataParallelCore(std::shared_ptr<torch::nn::Module> module,
                                   std::vector<c10::Device> devices, const MakeReplica& make) {
  if (!module) throw InputError("the module is empty", "data_parallel", "make it first");
  check_devices(devices);
  module->to(devices.front());
  state_ = std::make_unique<State>(std::move(module), std::move(devices), make);
}

DataParallelCore::~DataParallelCore() = default;

const std::vector<c10::Device>& DataParallelCore::devices() const {
  return state_->devices;
}

std::vector<std::vector<at::Tensor>> DataParallelCore::scatter(const std::vector<at::Tensor>& whole) const {
  require_one_batch(whole);
  const auto& devices = state_->devices;
  std::vector<std::vector<at::Tensor>> chunks;  // [tensor][device]
  size_t count = 1;
  for (const auto& tensor : whole) {
    chunks.push_back(tensor.dim() == 0 ? std::vector<at::Tensor>()
                                       : tensor.chunk(static_cast<int64_t>(devices.size())));
    count = std::max(count, chunks.back().size());
  }
  std::vector<std::vector<at::Tensor>> shares(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < whole.size(); ++k)
      shares[i].push_back(parallel::sent(chunks[k].empty() ? whole[k] : chunks[k][i], i, devices[i]));
  }
  return shares;
}

std::vector<at::Tensor> DataParallelCore::run(std::vector<std::vector<at::Tensor>> given,
                                              const Forward& forward) {
  auto& state = *state_;
  state.replicas.refresh(given.size(), !state.pending.expired());
  const bool recording = at::GradMode::is_enabled();
  std::vector<DeviceShare> shares(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    shares[i].given = std::move(given[i]);
    if (recording) shares[i].leaves = state.replicas.leaves(i);
    for (const auto& tensor : shares[i].given)
      shares[i].inputs.push_back(tensor.requires_grad() ? tensor.detach().requires_grad_() : tensor);
  }
  state.run_all(shares.size(),
                [&](size_t i) { shares[i].outputs = forward(i, *state.replicas[i], shares[i].inputs); });
  auto gathered = parallel::gather(std::move(shares), state.replicas.sources(), state.threads, state.devices);
  state.pending = gathered.pending;
  return std::move(gathered.outputs);
}

}  // namespace lockstep
