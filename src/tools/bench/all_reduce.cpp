#include "tools/bench/all_reduce.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/shm/reduction.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/mpi/calls.h"
#include "lockstep/parallel/session.h"
#include "tools/bench/all_reduce_report.h"
#include "tools/bench/machine.h"
#include "tools/bench/measure.h"
#include "tools/bench/ways.h"

namespace lockstep::bench {
namespace {

comm::Facts facts_of(const AllReduceBench& asked) {
  std::string sizes;
  for (const auto size : asked.sizes) sizes += format("{} ", size);
  return {{"the program", asked.program},
          {"the command", "bench allreduce"},
          {"--algorithm", asked.algorithm},
          {"--backend", asked.backend},
          {"--sizes", sizes},
          {"--rounds", std::to_string(asked.rounds)},
          {"--latency", format("{}", asked.latency)},
          {"--bandwidth", format("{}", asked.bandwidth)}};
}

std::vector<const Algorithm*> chosen(const std::string& name) {
  if (name != "all") return {&find_all_reduce(name)};
  std::vector<const Algorithm*> all;
  for (const auto& algorithm : all_reduce_algorithms()) all.push_back(&algorithm);
  return all;
}

void plain_mpi(at::Tensor& tensor) {
  mpi::calls().allreduce(mpi::kInPlace, tensor.data_ptr(), static_cast<int>(tensor.numel()),
                         mpi::Type::float32, mpi::Op::sum, mpi::Comm::world);
}

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
  return spread_of(std::move(times)).median / 2;
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

// Alpha, beta and gamma of this machine. A ping-pong of a small and of a large message between rank 0 and the
// first rank of another node, or rank 1; and adding numbers. Collective.
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

// The job that measures: its ranks, its groups.
class Bench {
 public:
  explicit Bench(const AllReduceBench& asked) : asked_(asked) {
    auto runtime = std::make_unique<launch::Runtime>(asked.launcher);
    runtime_ = runtime.get();
    const auto facts = [&asked](const launch::DeviceChoice&) { return facts_of(asked); };
    session_ =
        std::make_unique<Session>(std::move(runtime), parallel::Joining{.options = {}, .facts = facts});
    if (session_->world() == 1)
      throw InputError("one rank has nothing to exchange", "bench allreduce",
                       "start more: mpirun -n 2 lockstep bench allreduce");
    auto shared = comm::connect(*runtime_, {.backend = "shared"});
    if (shared->getBackend(c10::kCPU)->getBackendName() == "shared") shared_ = std::move(shared);
  }

  const Session& session() const { return *session_; }

  /// gloo, shared memory, NCCL and MPI as far as they are available; then the algorithms.
  std::vector<Way> ways(std::vector<std::string>& notes) {
    std::vector<Way> ways = {through("gloo", comm::connect(*runtime_, {.backend = "gloo"}))};
    if (shared_) {
      ways.push_back(through("shared", shared_));
      if (on_one_node()) ways.push_back(in_shared_memory("shared_in_place", shared_));
    } else {
      notes.push_back("shared is not measured: it is gloo where the ranks share no memory");
    }
    const auto device = session_->device();
    device.is_cuda() ? ways.push_back(through("nccl", session_->group(), device))
                     : notes.push_back("nccl is not measured: no GPU here");
    if (runtime_->has_mpi()) {
      ways.push_back({.name = "MPI_Allreduce", .sum = plain_mpi});
      mpi_ = comm::connect(*runtime_, {.backend = "mpi"});
      ways.push_back(through("mpi", mpi_));
      ways.push_back(in_shared_memory("mpi_shared", mpi_));
    } else {
      notes.push_back("MPI is not measured: the ranks were not started by it");
    }
    for (const auto* algorithm : chosen(asked_.algorithm)) {
      ways.push_back(through(algorithm->name, carried_by(*algorithm)));
      ways.back().algorithm = algorithm;
    }
    return ways;
  }

  /// A barrier. gloo's releases one rank long before the other, which would distort a sum of microseconds.
  /// The one in shared memory spins; two in a row, so that a rank that is late for the first is in time for
  /// the second.
  void line_up() const {
    const auto& spins = shared_ && on_one_node() ? shared_ : mpi_;
    if (!spins) return session_->team().barrier();
    for (int i = 0; i < 2; ++i) spins->barrier()->wait();
  }

  Network network() { return measure_network(session_->team(), carried_by(*chosen(asked_.algorithm)[0])); }

 private:
  bool on_one_node() const { return session_->team().job().nodes == 1; }

  ProcessGroup carried_by(const Algorithm& algorithm) {
    return comm::connect(*runtime_, {.backend = asked_.backend,
                                     .allreduce = algorithm.name,
                                     .latency_us = asked_.latency * 1e6,
                                     .bandwidth_gbit = asked_.bandwidth * 8 / 1e9});
  }

  const AllReduceBench& asked_;
  launch::Runtime* runtime_;  // the session's
  std::unique_ptr<Session> session_;
  ProcessGroup shared_;  // where the ranks share memory
  ProcessGroup mpi_;     // where MPI is
};

// Collective.
std::string caution_of(const Team& team) {
  if (!has_more_ranks_than_cores(team)) return "";
  return "more ranks than cores: they wait for one another's turns, which the models do not include";
}

AllReduceFound measure_ways(Bench& bench, const AllReduceBench& asked) {
  const auto& team = bench.session().team();
  AllReduceFound found{.asked = asked, .ranks = {team.world(), team.job().nodes}};
  found.network = bench.network();
  found.caution = caution_of(team);
  const auto ways = bench.ways(found.notes);
  for (const auto& way : ways) found.rows.push_back({way.name, way.algorithm, {}});
  for (const auto size : asked.sizes) {
    const auto times = measured(team, ways, size, static_cast<int>(asked.rounds), [&] { bench.line_up(); });
    for (size_t way = 0; way < times.size(); ++way) found.rows[way].seconds.push_back(times[way]);
  }
  return found;
}

}  // namespace

void check(const AllReduceBench& bench) {
  chosen(bench.algorithm);
  check_out(bench.out);
  if (bench.rounds < 1 || bench.rounds > 1000)
    throw InputError("--rounds is a number from 1 to 1000", "--rounds", "7 is usual");
  if (bench.backend == "gloo" || bench.backend == "mpi") return;
  throw InputError(
      format("the algorithms are messages between CPUs, and {} carries none", base::printable(bench.backend)),
      "--backend", "choose gloo or mpi");
}

int all_reduce(const AllReduceBench& asked) {
  check(asked);
  Bench bench(asked);
  const auto& team = bench.session().team();
  on_first(team, [&] { check_place(asked.out); });
  const auto found = measure_ways(bench, asked);
  on_first(team, [&] { print_and_write(page_of(found), asked.out); });
  return kDone;
}

}  // namespace lockstep::bench
