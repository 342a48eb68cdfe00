#include "lockstep/comm/rendezvous/join.h"

#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <cctype>
#include <thread>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/rendezvous/network.h"
#include "lockstep/comm/rendezvous/private_folder.h"
#include "lockstep/comm/rendezvous/store.h"
#include "lockstep/launch/layout.h"
#include "lockstep/launch/process/mpi.h"
#include "lockstep/launch/variables.h"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Exchange = std::unique_ptr<launch::TextExchange>;

constexpr size_t kLongestName = 80;
constexpr Milliseconds kRetry{50};
constexpr Milliseconds kLocalRetry{5};

std::uint16_t port_of(const std::string& text) {
  const auto port = base::parse_number(text).value_or(0);
  if (port < 1 || port > 65535) {
    throw InputError(format("MASTER_PORT is '{}', which is not a port", text), "the environment",
                     "set MASTER_PORT to a number from 1 to 65535, the same on every rank");
  }
  return static_cast<std::uint16_t>(port);
}

// A name from a user or a batch system must not be a path.
std::string file_name(std::string name) {
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
    if (!plain) c = '_';
  }
  return name.substr(0, kLongestName);
}

Rendezvous by_address(const launch::Environment& environment, const Job& job) {
  const auto host = launch::text_of(environment, "MASTER_ADDR");
  Rendezvous plan{.kind = RendezvousKind::address,
                  .host = host,
                  .port = port_of(launch::text_of(environment, "MASTER_PORT")),
                  .prefix = format("lockstep/{}/{}", launch::text_of(environment, "TORCHELASTIC_RUN_ID"),
                                   launch::text_of(environment, "TORCHELASTIC_RESTART_COUNT")),
                  .because = "MASTER_ADDR and MASTER_PORT are set"};
  // torchrun sets this if its agent already listens: a second server on that port would fail
  if (launch::text_of(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True") {
    plan.kind = RendezvousKind::agent;
    plan.because = "torchrun's agent holds the store";
  } else if (launch::is_known_single_node(job) || names_loopback_itself(host)) {
    plan.kind = RendezvousKind::local;
    plan.path = private_path(environment, file_name(format("{}-{}", host, plan.port)));
  }
  return plan;
}

Rendezvous by_name(const launch::Environment& environment, const Job& job, const std::string& name,
                   const std::string& because) {
  if (launch::is_known_single_node(job))
    return {.kind = RendezvousKind::local,
            .path = private_path(environment, file_name(name)),
            .because = because};
  std::string parent = ".";
  for (const char* variable : {"PBS_O_WORKDIR", "SLURM_SUBMIT_DIR", "LOCKSTEP_RENDEZVOUS_DIR"})
    if (const auto folder = launch::text_of(environment, variable); !folder.empty()) parent = folder;
  return {.kind = RendezvousKind::file, .path = private_folder(parent) + file_name(name), .because = because};
}

Rendezvous by_job_step(const launch::Environment& environment, const Job& job) {
  if (job.job_id.empty())
    throw InputError(format("{} ranks cannot connect without MPI, MASTER_ADDR or a job id", job.world),
                     "the environment",
                     "start the ranks with mpirun, srun or torchrun, or set MASTER_ADDR and MASTER_PORT")
        .of(Code::not_joined);
  return by_name(environment, job,
                 format("{}-{}-{}-{}", job.scheduler, launch::text_of(environment, "SLURM_STEP_ID"),
                        launch::text_of(environment, "SLURM_RESTART_COUNT"), job.job_id),
                 "without MPI and MASTER_ADDR, lockstep uses a file named after the job step");
}

StorePtr under(const std::string& prefix, const StorePtr& store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

// What find(path) returns once rank 0 has created its file, which may be late on a shared file system.
template <class Find>
auto wait_for_file(const Rendezvous& plan, const Member& own, Milliseconds timeout, Milliseconds retry,
                   const Find& find) {
  for (const base::Deadline deadline(timeout); !deadline.passed(); std::this_thread::sleep_for(retry))
    if (auto found = find(plan.path)) return found;
  throw Error(format("rank 0 did not join within {}: there is no file {}", base::in_seconds(timeout),
                     base::printable(plan.path, base::kLongestPath)),
              place_of(own),
              "look in the log for an earlier error of rank 0; every rank must see that folder, and ranks on "
              "one machine need the same TMPDIR, MASTER_ADDR and MASTER_PORT")
      .of(Code::not_joined, {0});
}

Exchange join_locally(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  const ExchangeOptions options{.timeout = timeout, .one_machine = true};
  if (own.rank == 0) return join_over(LocalStore(plan.path).store(), own, options);
  return join_over(wait_for_file(plan, own, timeout, kLocalRetry, find_local_store), own, options);
}

// Debian's /etc/hosts maps the host's own name to 127.0.1.1, where other nodes cannot connect. Behind a
// service's address rank 0 has another address. In both cases rank 0 listens on all addresses.
Exchange join_at_address(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  if (own.rank != 0) {
    return join_over(under(plan.prefix, connect_store(own, plan.host, plan.port, timeout)), own,
                     {.timeout = timeout});
  }
  const bool one = is_own_address(plan.host);
  auto store =
      serve_store(one ? plan.host : "127.0.0.1", listen_on(one ? plan.host : "0.0.0.0", plan.port), timeout);
  return join_over(under(plan.prefix, store), own,
                   {.timeout = timeout, .address = one ? plan.host : "", .serves = true});
}

Exchange join_by_file(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  if (own.rank != 0) {
    const auto place = *wait_for_file(plan, own, timeout, kRetry, find_store_location);
    return join_over(under(place.token, connect_store(own, place.host, place.port, timeout)), own,
                     {.timeout = timeout});
  }
  StoreLocation place{.host = own_interface(true).address, .token = base::random_word()};
  Listener listener = listen_on(place.host);
  place.port = listener.port;
  auto store = serve_store(place.host, std::move(listener), timeout);
  const PrivateFile file = publish(plan.path, place);
  return join_over(under(place.token, store), own,
                   {.timeout = timeout, .address = place.host, .serves = true});
}

// Keys of this turn only: a process may join more than once.
StorePtr next_turn(const std::string& prefix, const StorePtr& store, int rank) {
  return under(format("{}/{}", prefix, store->add(format("{}/turn/{}", prefix, rank), 1)), store);
}

// torchrun's agent keeps its store over restarts.
Exchange join_over_agent_store(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  const auto agents = connect_store(own, plan.host, plan.port, timeout);
  return join_over(next_turn(plan.prefix, agents, own.rank), own, {.timeout = timeout});
}

Exchange meet(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  log::debug(format("rendezvous: {}", plan.because));
  switch (plan.kind) {
    case RendezvousKind::agent:
      return join_over_agent_store(plan, own, timeout);
    case RendezvousKind::address:
      return join_at_address(plan, own, timeout);
    case RendezvousKind::file:
      return join_by_file(plan, own, timeout);
    default:
      return join_locally(plan, own, timeout);
  }
}

// Other machines may reach the address at which the ranks have met. Once the layout is known, the exchange
// continues in a new store, which on one node needs no such address.
Exchange move_exchange(const launch::Runtime& runtime, Milliseconds timeout) {
  const std::string address = runtime.exchange()->address();
  auto store = open_store(runtime, timeout);
  return exchange_over(std::move(store), member_of(runtime.job()),
                       {.timeout = timeout, .address = address, .serves = runtime.job().rank == 0});
}

Facts facts_of_job(const Job& job) {
  return {{kJobIdFact, job.job_id}, {kVersionFact, LOCKSTEP_VERSION}};
}

// Without MPI each rank knows only its own place.
void agree_on_layout(launch::Runtime& runtime) {
  const auto texts = runtime.gather(launch::pack_reported_place(launch::reported_place(runtime.job())));
  const auto layout = runtime.from_first([&] { return launch::pack_layout(texts); });
  runtime.set_place(launch::place_in(layout, runtime.job().rank));
}

}  // namespace

Rendezvous plan_rendezvous(const launch::Environment& environment, const Job& job) {
  const auto name = launch::text_of(environment, "LOCKSTEP_RENDEZVOUS");
  if (!name.empty() && job.launcher == "as_world")
    return by_name(environment, job, name, "LOCKSTEP_RENDEZVOUS is set");
  const bool address = !launch::text_of(environment, "MASTER_ADDR").empty();
  const bool port = !launch::text_of(environment, "MASTER_PORT").empty();
  if (address && port) return by_address(environment, job);
  if (address != port) {
    throw InputError(format("{} is set but {} is not", address ? "MASTER_ADDR" : "MASTER_PORT",
                            address ? "MASTER_PORT" : "MASTER_ADDR"),
                     "the environment", "set both, the same on every rank, or neither");
  }
  return by_job_step(environment, job);
}

std::string ask_rank_zero(const launch::Runtime& runtime, const std::string& text,
                          const std::function<std::string(const std::vector<std::string>& texts)>& answer,
                          Milliseconds timeout) {
  if (runtime.has_mpi()) runtime.mpi().call_roll(timeout, launch::kJoin);
  const auto texts = runtime.gather(text);
  return runtime.broadcast(runtime.job().rank == 0 ? answer(texts) : "");
}

void join_ranks(launch::Runtime& runtime, Milliseconds timeout) {
  const Job& job = runtime.job();
  if (job.world == 1) return;
  if (runtime.has_mpi()) {
    runtime.set_timeout(timeout);
    runtime.mpi().call_roll(timeout, launch::kJoin);
  } else {
    const QuietJoin quiet;
    make_room_for_files(files_for(job));
    const Rendezvous plan = plan_rendezvous(launch::current_environment(), job);
    runtime.set_exchange(meet(plan, member_of(job), timeout));
    agree_on_layout(runtime);
    if (plan.kind == RendezvousKind::address || plan.kind == RendezvousKind::file)
      runtime.set_exchange(move_exchange(runtime, timeout));
  }
  agree(runtime, [&] { return facts_of_job(job); });
}

StorePtr join_in(launch::Runtime& runtime, const StorePtr& store, Milliseconds timeout) {
  const Job& job = runtime.job();
  auto own_part = next_turn("lockstep", store, job.rank);
  runtime.set_exchange(join_over(under("meet", own_part), member_of(job), {.timeout = timeout}));
  agree_on_layout(runtime);
  agree(runtime, [&] { return facts_of_job(job); });
  return own_part;
}

}  // namespace lockstep::comm
