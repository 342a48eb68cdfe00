#include "tools/doctor/job/sums.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <array>
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPeriod = 64;

float number(int64_t item, int round, int rank) {
  return static_cast<float>((item + 13 * rank + round) % kPeriod);
}

}  // namespace

at::Tensor numbers_of(int64_t items, int round, int rank) {
  auto numbers = at::empty({items}, at::kFloat);
  auto* data = numbers.data_ptr<float>();
  for (int64_t item = 0; item < items; ++item) data[item] = number(item, round, rank);
  return numbers;
}

std::string fault_in(const at::Tensor& sum, int round, int world) {
  std::array<float, kPeriod> want{};
  for (int rank = 0; rank < world; ++rank)
    for (int64_t item = 0; item < kPeriod; ++item)
      want[static_cast<size_t>(item)] += number(item, round, rank);
  const auto* data = sum.data_ptr<float>();
  for (int64_t item = 0; item < sum.numel(); ++item) {
    const float right = want[static_cast<size_t>(item % kPeriod)];
    if (data[item] != right)
      return format("number {} of {} is {}, and {} is right", item, sum.numel(), data[item], right);
  }
  return "";
}

double time_of_sums(const ProcessGroup& group, at::Device device, int64_t bytes, int rounds) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    std::vector<at::Tensor> tensors = {
        numbers_of(bytes / static_cast<int64_t>(sizeof(float)), round, group->getRank()).to(device)};
    const auto begin = Clock::now();
    group->allreduce(tensors)->wait();
    const auto sum = tensors[0].cpu();  // of a GPU it ends with the stream
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    const auto fault = fault_in(sum, round, group->getSize());
    if (!fault.empty())
      throw Error(
          "a wrong sum: " + fault, format("rank {}", group->getRank()),
          "memory or network of one of these nodes changes bits, or a library has a defect: leave nodes "
          "out until it is gone, and report it");
  }
  return best;
}

double bus_bandwidth(int64_t bytes, double seconds, int world) {
  return 2.0 * (world - 1) / world * static_cast<double>(bytes) / seconds;
}

}  // namespace lockstep::doctor
