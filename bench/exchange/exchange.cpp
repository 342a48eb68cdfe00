// gather, scatter and all-to-all over shared memory beside gloo, in turn; every result is checked.
//   cmake --build build/release --target bench_exchange && mpirun -n 2 build/release/bin/bench_exchange
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/comm/connect.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;

constexpr int kRounds = 5, kCalls = 20;
constexpr std::array kNames = {"gather", "scatter", "all-to-all"};
constexpr std::array<int64_t, 4> kSizes = {10, 1000, 100'000, 1'000'000};

struct Buffers {
  Tensors own;                // of a rank
  std::vector<Tensors> list;  // the root's
  at::Tensor from, into;      // of an all-to-all
};

// What rank r has for rank s is r + 100 s.
Buffers make_buffers(int rank, int world, int64_t items) {
  Buffers buffers;
  buffers.own = {at::full({items}, float(rank))};
  Tensors parts;
  for (int to = 0; to < world; ++to) parts.push_back(at::full({items}, float(rank + 100 * to)));
  buffers.from = at::cat(parts);
  buffers.into = at::zeros_like(buffers.from);
  if (rank == 0) buffers.list = {parts};
  return buffers;
}

void call(ProcessGroup& group, size_t kind, Buffers& buffers) {
  std::vector<int64_t> even;
  if (kind == 0) group->gather(buffers.list, buffers.own)->wait();
  if (kind == 1) group->scatter(buffers.own, buffers.list)->wait();
  if (kind == 2) base::own_all_to_all_single(*group, buffers.into, buffers.from, even, even)->wait();
}

void forget(size_t kind, Buffers& buffers) {
  if (kind == 0 && !buffers.list.empty())
    for (auto& tensor : buffers.list[0]) tensor.fill_(-1);
  if (kind == 1) buffers.own[0].fill_(-1);
  if (kind == 2) buffers.into.fill_(-1);
}

void check(size_t kind, const Buffers& buffers, int rank, int world) {
  const auto is = [](const at::Tensor& tensor, int number) { return tensor.eq(number).all().item<bool>(); };
  bool good = true;
  for (int other = 0; other < world; ++other) {
    if (kind == 0 && rank == 0) good &= is(buffers.list[0][size_t(other)], other);
    if (kind == 2) good &= is(buffers.into.chunk(world)[size_t(other)], other + 100 * rank);
  }
  if (kind == 1) good &= is(buffers.own[0], 100 * rank);
  if (!good) throw Error(std::string(kNames.at(kind)) + " brought wrong numbers");
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void add_times(ProcessGroup& group, size_t kind, int64_t items, std::vector<double>& times) {
  auto buffers = make_buffers(group->getRank(), group->getSize(), items);
  for (int i = 0; i < kCalls; ++i) {
    forget(kind, buffers);
    group->barrier()->wait();
    const auto begin = Clock::now();
    call(group, kind, buffers);
    group->barrier()->wait();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    check(kind, buffers, group->getRank(), group->getSize());
  }
}

void compare(launch::Runtime& runtime) {
  auto shared = comm::connect(runtime, {.backend = "shared"}),
       gloo = comm::connect(runtime, {.backend = "gloo"});
  const bool speaks = runtime.job().rank == 0;
  if (speaks) std::printf("%-10s %15s %10s %10s %6s\n", "", "floats a rank", "shared us", "gloo us", "ratio");
  for (size_t kind = 0; kind < kNames.size(); ++kind) {
    for (const int64_t items : kSizes) {
      std::vector<double> ours, theirs;
      for (int round = 0; round < kRounds; ++round) {
        add_times(shared, kind, items, ours);
        add_times(gloo, kind, items, theirs);
      }
      if (speaks)
        std::printf("%-10s %15lld %10.1f %10.1f %6.1f\n", kNames.at(kind), static_cast<long long>(items),
                    median(ours), median(theirs), median(theirs) / median(ours));
    }
  }
}

}  // namespace
}  // namespace lockstep

int main() {
  try {
    lockstep::launch::Runtime runtime("auto");
    lockstep::compare(runtime);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", lockstep::describe(error).c_str());
    return 1;
  }
}
