// `lockstep bench allreduce`.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/algorithms/message_runner.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/rendezvous/join.h"
#include "lockstep/comm/shared_backend.h"
#include "lockstep/comm/shm/reduction.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/mpi/calls.h"
#include "lockstep/parallel/session.h"
#include "tools/bench/bench.h"
#include "tools/bench/measure.h"

namespace lockstep::bench {
namespace {

using Sizes = std::vector<int64_t>;
using Tensors = std::vector<at::Tensor>;
using nlohmann::ordered_json;

// --- the ways ---

void plain_mpi(at::Tensor& tensor) {
  mpi::calls().allreduce(mpi::kInPlace, tensor.data_ptr(), static_cast<int>(tensor.numel()),
                         mpi::Type::float32, mpi::Op::sum, mpi::Comm::world);
}

std::vector<const Algorithm*> chosen(const std::string& name) {
  if (name != "all") return {&find_all_reduce(name)};
  std::vector<const Algorithm*> all;
  for (const auto& algorithm : all_reduce_algorithms()) all.push_back(&algorithm);
  return all;
}

// --- checked and timed ---

constexpr int64_t kSmall = 64 << 10;  // bytes
constexpr int kCallsOfSmall = 8;      // in a row, as one is too short to time

// Small whole numbers, others in each round: their sums are exact, and the last round's are wrong.
// The first 64 repeat.
at::Tensor numbers(int64_t items, int round, int first_rank, int ranks = 1) {
  auto sum = at::zeros({64});
  for (int rank = first_rank; rank < first_rank + ranks; ++rank)
    sum.add_(at::arange(64, at::kFloat).add_(13 * rank + round).remainder_(64));
  return sum.repeat({items / 64 + 1}).narrow(0, 0, items);
}

// By device and by the group in whose shared memory they lie.
using Places = std::map<std::pair<std::string, const void*>, Tensors>;

// The tensors lie in the same memory in every round, as gradients do in training. Ways that need the same
// kind of memory use the same tensors.
Tensors& tensors_of(const SumMethod& way, int64_t bytes, Places& places) {
  const auto [place, is_new] = places.try_emplace({way.device.str(), way.shares.get()});
  Tensors& tensors = place->second;
  if (!is_new) return tensors;
  for (int call = 0; call < (bytes <= kSmall ? kCallsOfSmall : 1); ++call)
    tensors.push_back(at::zeros({bytes / int64_t{sizeof(float)}}, at::kFloat).to(way.device));
  comm::share(way.shares, tensors);
  return tensors;
}

// --- alpha, beta and gamma of this machine ---

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

// A ping-pong of a small and of a large message between rank 0 and the first rank of another node, or rank 1,
// and adding numbers. Collective.
Network measure_network(const Team& team, const ProcessGroup& group) {
  auto* runner = dynamic_cast<comm::MessageRunner*>(group->getBackend(c10::kCPU).get());
  if (!runner) throw Error("the backend cannot send the messages of collectives", "bench allreduce");
  double few = 0, many = 0;
  team.barrier();
  const comm::Collective ping_pong{"ping-pong", 0, std::chrono::minutes(1)};
  const auto error = runner->run_messages(ping_pong, [&](Messenger& messenger) {
    few = one_way(messenger, kFew);
    many = one_way(messenger, kMany);
  });
  if (error) std::rethrow_exception(error);
  std::vector<double> values = {few, std::max(0.0, many - few) / kMany, adding_a_byte()};
  team.max(values);
  return {.alpha = values[0], .beta = values[1], .gamma = values[2]};
}

// --- the job that measures ---

// Its ranks and its groups.
class Bench {
 public:
  explicit Bench(const AllReduceBench& asked) : asked_(asked) {
    auto runtime = std::make_unique<launch::Runtime>(asked.launcher);
    runtime_ = runtime.get();
    const auto facts = [&asked](const launch::DeviceChoice&) -> comm::Facts {
      return {{"the program", asked.program},
              {"the command", "bench allreduce " + base::join(asked.words, " ")}};
    };
    session_ =
        std::make_unique<Session>(std::move(runtime), parallel::SessionSetup{.options = {}, .facts = facts});
    if (session_->world() == 1)
      throw InputError("one rank has nothing to exchange", "bench allreduce",
                       "start more: mpirun -n 2 lockstep bench allreduce");
    auto shared = comm::connect(*runtime_, {.backend = "shared"});
    if (shared->getBackend(c10::kCPU)->getBackendName() == "shared") shared_ = std::move(shared);
  }

  const Session& session() const { return *session_; }

  /// gloo, shared memory, NCCL and MPI as far as they are available; then the algorithms.
  std::vector<SumMethod> ways(std::vector<std::string>& notes) {
    std::vector<SumMethod> ways = {through("gloo", comm::connect(*runtime_, {.backend = "gloo"}))};
    if (shared_) {
      ways.push_back(through("shared", shared_));
      if (on_one_node()) ways.push_back(through("shared_in_place", shared_, at::kCPU, /*in_place=*/true));
    } else {
      notes.push_back("shared is not measured: the ranks share no memory");
    }
    const auto device = session_->device();
    device.is_cuda() ? ways.push_back(through("nccl", session_->group(), device))
                     : notes.push_back("nccl is not measured: no GPU here");
    if (runtime_->has_mpi()) {
      ways.push_back({.name = "MPI_Allreduce", .sum = plain_mpi});
      mpi_ = comm::connect(*runtime_, {.backend = "mpi"});
      ways.push_back(through("mpi", mpi_));
      ways.push_back(through("mpi_shared", mpi_, at::kCPU, /*in_place=*/true));
    } else {
      notes.push_back("MPI is not measured: MPI did not start the ranks");
    }
    for (const auto* algorithm : chosen(asked_.algorithm)) {
      ways.push_back(through(algorithm->name, group_for(*algorithm)));
      ways.back().algorithm = algorithm;
    }
    return ways;
  }

  /// A barrier. gloo's releases one rank long before the other, which would distort a sum of microseconds.
  /// The one in shared memory spins. Two in a row: a rank late for the first is in time for the second.
  void line_up() const {
    const auto& spins = shared_ && on_one_node() ? shared_ : mpi_;
    if (!spins) return session_->team().barrier();
    for (int i = 0; i < 2; ++i) spins->barrier()->wait();
  }

  Network network() { return measure_network(session_->team(), group_for(*chosen(asked_.algorithm)[0])); }

 private:
  bool on_one_node() const { return session_->team().job().nodes == 1; }

  ProcessGroup group_for(const Algorithm& algorithm) {
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

struct AllReduceResult {
  AllReduceBench asked;
  Ranks ranks;
  Network network = {};
  std::vector<TimeCurve> curves = {};
  std::vector<std::string> notes = {};
  bool is_crowded = false;  // more ranks than cores
};

AllReduceResult measure_ways(Bench& bench, const AllReduceBench& asked) {
  const auto& team = bench.session().team();
  AllReduceResult result{.asked = asked, .ranks = {team.world(), team.job().nodes}};
  result.network = bench.network();
  result.is_crowded = has_more_ranks_than_cores(team);
  const auto ways = bench.ways(result.notes);
  for (const auto& way : ways) result.curves.push_back({way.name, {}, way.algorithm});
  for (const auto size : asked.sizes) {
    const auto times = measured(team, ways, size, static_cast<int>(asked.rounds), [&] { bench.line_up(); });
    for (size_t way = 0; way < times.size(); ++way) {
      auto& curve = result.curves[way];
      curve.seconds.push_back(times[way]);
      if (curve.algorithm)
        curve.model.push_back(
            curve.algorithm->seconds(result.ranks, static_cast<double>(size), result.network));
    }
  }
  return result;
}

// --- the result ---

const TimeCurve& fastest(const std::vector<TimeCurve>& curves, size_t size) {
  return *std::ranges::min_element(curves, {},
                                   [size](const TimeCurve& curve) { return curve.seconds[size]; });
}

// A row for each curve, a column for each size; text(curve, i) is a cell.
template <class Text>
report::Table table_by_size(const std::string& head, const Sizes& sizes, const std::vector<TimeCurve>& curves,
                            const Text& text) {
  report::Table table = {{head}};
  for (const auto size : sizes) table[0].push_back(report::bytes_text(static_cast<double>(size)));
  for (const auto& curve : curves) {
    table.push_back({curve.name});
    for (size_t i = 0; i < sizes.size(); ++i) table.back().push_back(text(curve, i));
  }
  return table;
}

// For the charts, which page.html draws.
ordered_json curves_json(const AllReduceResult& result) {
  ordered_json json = {{"world", result.ranks.world}, {"sizes", result.asked.sizes}};
  for (const auto& curve : result.curves) {
    json["curves"].push_back({{"name", curve.name}, {"seconds", curve.seconds}});
    if (curve.algorithm) json["curves"].back()["model"] = curve.model;
  }
  return json;
}

std::string setting(const AllReduceResult& result) {
  const auto& [asked, ranks, net, curves, notes, crowded] = result;
  auto text = format(
      "{} ranks on {}, {}: alpha {} per message, beta {:.3f} ns per byte, gamma {:.3f} ns per byte "
      "added",
      ranks.world, base::counted(ranks.nodes, "node"), asked.backend, report::seconds_text(net.alpha),
      net.beta * 1e9, net.gamma * 1e9);
  if (asked.latency > 0 || asked.bandwidth > 0)
    text += "; simulated slow network (not for gloo, MPI and NCCL): " +
            delay_text(asked.latency, asked.bandwidth);
  return text;
}

report::Page page_of(const AllReduceResult& result) {
  const auto& sizes = result.asked.sizes;
  const auto& all = result.curves;
  std::vector<TimeCurve> own, models, with_models = all;  // own: the algorithms alone
  report::Table formulas = {{"algorithm", "how it works", "seconds"}};
  for (const auto& curve : all) {
    if (!curve.algorithm) continue;
    own.push_back(curve);
    models.push_back({curve.name, curve.model});
    with_models.push_back({curve.name + " (model)", curve.model});
    formulas.push_back({curve.name, curve.algorithm->summary, curve.algorithm->formula});
  }
  const auto curves = curves_json(result);
  report::Page page("lockstep bench allreduce");
  page.section("Time and bus bandwidth");
  page.text(setting(result));
  for (const auto& note : result.notes) page.note(note);
  page.note(
      format("all sums were correct; times are medians of {}, on the slowest rank", result.asked.rounds));
  page.add("fastest", curves);
  page.section("Times");
  page.table(table_by_size("microseconds", sizes, with_models, [](const TimeCurve& curve, size_t i) {
    const double value = curve.seconds[i] * 1e6;
    return format("{:.{}f}", value, value >= 100 ? 0 : 1);
  }));
  if (result.is_crowded)
    page.text("there are more ranks than cores, so ranks wait for a core, which the models do not include");
  page.section("Fastest by size");
  page.table(table_by_size("times the fastest", sizes, all, [&](const TimeCurve& curve, size_t i) {
    const double ratio = curve.seconds[i] / fastest(all, i).seconds[i];
    return format("{:.{}f}", ratio, ratio < 10 ? 1 : 0);
  }));
  page.text("fastest algorithm, measured: " + crossovers(sizes, own));
  page.text("fastest algorithm, by the model: " + crossovers(sizes, models));
  page.section("Each algorithm and its model");
  page.add("one_by_one", curves);
  page.section("Cost formulas");
  page.add("table", formulas);
  return page;
}

}  // namespace

SumMethod through(const std::string& name, const ProcessGroup& group, at::Device device, bool in_place) {
  const auto sum = [group](at::Tensor& tensor) {
    Tensors tensors = {tensor};
    group->allreduce(tensors)->wait();
    if (tensor.is_cuda()) tensor.view({-1})[0].item<float>();  // waits for the stream
  };
  return {.name = name, .sum = sum, .device = device, .shares = in_place ? group : ProcessGroup()};
}

std::vector<double> measured(const Team& team, const std::vector<SumMethod>& ways, int64_t bytes, int rounds,
                             const std::function<void()>& line_up) {
  const int64_t items = bytes / int64_t{sizeof(float)};
  Places places;
  const auto take_turn = [&](size_t method, int round) -> std::vector<double> {
    const SumMethod& way = ways[method];
    Tensors& tensors = tensors_of(way, bytes, places);
    const auto own = numbers(items, round, team.rank()), want = numbers(items, round, 0, team.world());
    for (auto& tensor : tensors) tensor.copy_(own);
    line_up();
    const auto begin = Clock::now();
    for (auto& tensor : tensors) way.sum(tensor);
    const double seconds = since(begin) / static_cast<double>(tensors.size());
    team.together([&] {
      for (const auto& tensor : tensors)
        if (!at::equal(tensor.cpu(), want))
          throw Error(format("{} computed a wrong sum of {} floats", way.name, items),
                      format("rank {} on host {}", team.rank(), team.job().host),
                      "exclude nodes one by one until the sums are right, and report that node: its memory "
                      "or network changes bits, or a library has a bug");
    });
    return {seconds};
  };
  std::vector<double> times;
  for (const auto& way : interleaved_medians(team, ways.size(), /*warm_up=*/1, rounds, take_turn))
    times.push_back(way[0]);
  return times;
}

std::string crossovers(const Sizes& sizes, const std::vector<TimeCurve>& curves) {
  std::string text;
  for (size_t i = 0; i < sizes.size() && !curves.empty(); ++i) {
    const auto& name = fastest(curves, i).name;
    const bool last = i + 1 == sizes.size();
    if (!last && fastest(curves, i + 1).name == name) continue;
    text += (text.empty() ? "" : ", then ") + name;
    if (!last) text += " up to " + report::bytes_text(static_cast<double>(sizes[i]));
  }
  return text;
}

void check(const AllReduceBench& bench) {
  chosen(bench.algorithm);
  check_out(bench.out);
  if (bench.rounds < 1 || bench.rounds > 1000)
    throw InputError("--rounds must be from 1 to 1000", "--rounds", "use 7");
  if (bench.backend == "gloo" || bench.backend == "mpi") return;
  throw InputError(format("the algorithms need messages between CPUs, which {} cannot send",
                          base::printable(bench.backend)),
                   "--backend", "choose gloo or mpi");
}

int all_reduce(const AllReduceBench& asked) {
  Bench bench(asked);
  const auto& team = bench.session().team();
  check_place(team, asked.out);
  report_on_first(team, asked.out, page_of(measure_ways(bench, asked)));
  return kDone;
}

}  // namespace lockstep::bench
