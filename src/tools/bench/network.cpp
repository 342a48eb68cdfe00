#include "tools/bench/network.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/memory/reduction.h"
#include "tools/bench/clock.h"

namespace lockstep::bench {
namespace {

constexpr size_t kFew = 8, kMany = 1 << 20;
constexpr size_t kRounds = 15;

int partner_of_first(const Messenger& messenger) {
  for (int rank = 1; rank < messenger.world(); ++rank)
    if (messenger.node_of(rank) != messenger.node_of(0)) return rank;
  return 1;
}

// Half of the median time there and back.
double one_way(Messenger& messenger, size_t bytes) {
  const int partner = partner_of_first(messenger), rank = messenger.rank();
  if (rank != 0 && rank != partner) return 0;
  std::vector<std::byte> data(bytes);
  std::vector<double> times;
  for (size_t round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    if (rank == 0) messenger.send(partner, data);
    messenger.receive(rank == 0 ? partner : 0, data);
    if (rank != 0) messenger.send(0, data);
    times.push_back(since(begin));
  }
  std::sort(times.begin(), times.end());
  return times[kRounds / 2] / 2;
}

double adding_a_byte() {
  const auto sum = comm::find_reduction(c10::ScalarType::Float, c10d::ReduceOp::SUM);
  std::vector<float> numbers(kMany / sizeof(float)), others(numbers.size());
  auto* data = reinterpret_cast<std::byte*>(numbers.data());
  const std::byte* sources[] = {data, reinterpret_cast<const std::byte*>(others.data())};
  double best = 1;
  for (size_t round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    sum.combine(sources, 2, data, numbers.size());
    best = std::min(best, since(begin));
  }
  return best / kMany;
}

}  // namespace

Network measure_network(const Team& team, const ProcessGroup& group) {
  auto* carrier = dynamic_cast<comm::Carrier*>(group->getBackend(c10::kCPU).get());
  if (!carrier) throw Error("the group carries no messages of collectives", "bench allreduce");
  double few = 0, many = 0;
  team.barrier();
  const comm::Collective ping_pong{"ping-pong", 0, std::chrono::minutes(1)};
  const auto error = carrier->carry(ping_pong, [&](Messenger& messenger) {
    few = one_way(messenger, kFew);
    many = one_way(messenger, kMany);
  });
  if (error) std::rethrow_exception(error);
  std::vector<double> values = {few, std::max(0.0, many - few) / kMany, adding_a_byte()};
  team.max(values);
  return {.alpha = values[0], .beta = values[1], .gamma = values[2]};
}

}  // namespace lockstep::bench
