// All-reduce of float sums through gloo, MPI_Allreduce and the backend mpi, side by side; "mpi_shared" sums
// tensors that lie where the ranks share memory, as DDP's buckets do:
//   mpirun -n 2 build/release/bin/bench_allreduce [REPEATS]
// One line a size: the median microseconds of each. Every timed result is checked, the ways take turns within
// a repeat, and a barrier comes before each, so that a slow rank is not billed to the next way.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/shared_tensors.h"
#include "lockstep/mpi/calls.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSizes[] = {1, 256, 16'384, 432'538,
                              8'388'608};  // floats: 4 B to 32 MiB; the fourth is SimpleCNN's

struct Way {
  std::string name;
  std::function<void(at::Tensor&)> sum;
  ProcessGroup shares;  // whose shared memory the tensors lie in
};

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

Way through(ProcessGroup group) {
  const auto sum = [group](at::Tensor& tensor) {
    std::vector<at::Tensor> tensors = {tensor};
    group->allreduce(tensors)->wait();
  };
  return {group->getBackendName(), sum, {}};
}

Way in_shared_memory(ProcessGroup group) {
  return {group->getBackendName() + "_shared", through(group).sum, group};
}

void plain_mpi(at::Tensor& tensor) {
  mpi::calls().allreduce(mpi::kInPlace, tensor.data_ptr<float>(), static_cast<int>(tensor.numel()),
                         mpi::Type::float32, mpi::Op::sum, mpi::Comm::world);
}

constexpr int64_t kSmall = 16'384;
int calls_for(int64_t items) {
  return items < kSmall ? 20 : 1;
}

// Small whole numbers that change with each repeat: last time's sum is a wrong one.
float input_of(int repeat, int rank) {
  return static_cast<float>(repeat % 97 + rank);
}

// Summed once, then multiplied by the world with each further call.
float result_of(int repeat, int world, int calls) {
  const int sum = world * (repeat % 97) + world * (world - 1) / 2;
  auto value = static_cast<float>(sum);
  for (int call = 1; call < calls; ++call) value *= static_cast<float>(world);
  return value;
}

// In one pass and without a tensor more, which would leave every way's memory cold for the next.
void check(const at::Tensor& tensor, float want, const std::string& way) {
  const float* values = tensor.const_data_ptr<float>();
  const float most = 1e-5f * want;
  const auto wrong = [&](float value) { return !(std::abs(value - want) <= most); };
  if (std::none_of(values, values + tensor.numel(), wrong)) return;
  throw Error(format("{} summed wrongly: {} floats, wanted {}", way, tensor.numel(), want));
}

double timed(const Way& way, at::Tensor& tensor, int repeat, const Job& job, const ProcessGroup& together) {
  const int calls = calls_for(tensor.numel());
  tensor.fill_(input_of(repeat, job.rank));
  together->barrier()->wait();
  const auto start = Clock::now();
  for (int call = 0; call < calls; ++call) way.sum(tensor);
  const double micros = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  check(tensor, result_of(repeat, job.world, calls), way.name);
  return micros / calls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// What the slowest rank needed, as a training step would feel it.
double slowest(double own) {
  double all = 0;
  mpi::calls().allreduce(&own, &all, 1, mpi::Type::float64, mpi::Op::max, mpi::Comm::world);
  return all;
}

void run(int repeats) {
  launch::Runtime runtime;
  const Job& job = runtime.job();
  const auto mpi = comm::connect(runtime, {.backend = "mpi"});
  const std::vector<Way> ways = {through(comm::connect(runtime, {.backend = "gloo"})),
                                 {"MPI_Allreduce", plain_mpi, {}},
                                 through(mpi),
                                 in_shared_memory(mpi)};
  if (job.rank == 0)
    std::printf("%s, %d ranks, %d repeats, median microseconds\n%12s", processor().c_str(), job.world,
                repeats, "bytes");
  for (const auto& way : ways) {
    if (job.rank == 0) std::printf(" %14s", way.name.c_str());
  }
  for (const int64_t items : kSizes) {
    std::vector<at::Tensor> tensors;
    for (const auto& way : ways) tensors.push_back(comm::shared_buffer(way.shares, at::kFloat, {items}));
    std::vector<std::vector<double>> times(ways.size());
    for (int repeat = 0; repeat < repeats + 3; ++repeat) {
      for (size_t i = 0; i < ways.size(); ++i) {
        const double micros = timed(ways[i], tensors[i], repeat, job, mpi);
        if (repeat >= 3) times[i].push_back(micros);
      }
    }
    if (job.rank == 0) std::printf("\n%12ld", static_cast<long>(items * 4));
    for (auto& of_way : times) {
      const double micros = slowest(median(of_way));
      if (job.rank == 0) std::printf(" %14.2f", micros);
    }
  }
  if (job.rank == 0) std::printf("\n");
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    lockstep::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 51);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", lockstep::describe(error).c_str());
    lockstep::mpi::calls().abort(lockstep::mpi::Comm::world, 1);
  }
}
