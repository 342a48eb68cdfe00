#include "lockstep/comm/meet/join.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/network.h"
#include "lockstep/comm/meet/private_folder.h"
#include "lockstep/comm/meet/rendezvous.h"
#include "lockstep/comm/meet/store.h"
#include "lockstep/launch/layout.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Exchange = std::unique_ptr<launch::TextExchange>;

constexpr Milliseconds kRetry{50};
constexpr Milliseconds kLocalRetry{5};

StorePtr under(const std::string& prefix, const StorePtr& store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

Exchange meet_locally(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  const ExchangeOptions options{.timeout = timeout, .one_machine = true};
  if (own.rank == 0) return meet_over(LocalStore(plan.path).store(), own, options);
  for (const auto deadline = Clock::now() + timeout; Clock::now() < deadline;) {
    if (const auto store = find_local_store(plan.path)) return meet_over(store, own, options);
    std::this_thread::sleep_for(kLocalRetry);
  }
  throw Error(format("rank 0 did not join within {}: it created no file {}", base::in_seconds(timeout),
                     base::printable(plan.path)),
              place_of(own),
              "look in the log for an earlier error of rank 0; ranks on one machine need the same TMPDIR, "
              "MASTER_ADDR and MASTER_PORT")
      .of(Code::not_joined, {0});
}

// Debian's /etc/hosts maps the host's own name to 127.0.1.1, where other nodes cannot connect. Behind a
// service's address rank 0 has another address. In both cases rank 0 listens on all addresses.
Exchange meet_at_address(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  if (own.rank != 0) {
    return meet_over(under(plan.prefix, connect_store(own, plan.host, plan.port, timeout)), own,
                     {.timeout = timeout});
  }
  const bool one = !is_loopback_name(plan.host) && is_own_address(plan.host);
  auto store =
      serve_store(one ? plan.host : "127.0.0.1", listen_on(one ? plan.host : "0.0.0.0", plan.port), timeout);
  return meet_over(under(plan.prefix, store), own,
                   {.timeout = timeout, .address = one ? plan.host : "", .serves = true});
}

// Rank 0's file may be late on a shared file system.
MeetingPlace wait_for_place(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  for (const auto deadline = Clock::now() + timeout; Clock::now() < deadline;
       std::this_thread::sleep_for(kRetry)) {
    if (const auto place = find_place(plan.path)) return *place;
  }
  throw Error(format("rank 0 did not join within {}: there is no file {}", base::in_seconds(timeout),
                     base::printable(plan.path, base::kLongestPath)),
              place_of(own), "look in the log for an earlier error of rank 0; all nodes must see that folder")
      .of(Code::not_joined, {0});
}

Exchange meet_by_file(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  if (own.rank != 0) {
    const auto place = wait_for_place(plan, own, timeout);
    return meet_over(under(place.word, connect_store(own, place.host, place.port, timeout)), own,
                     {.timeout = timeout});
  }
  MeetingPlace place{.host = own_interface(true).address, .word = random_word()};
  Listener listener = listen_on(place.host);
  place.port = listener.port;
  auto store = serve_store(place.host, std::move(listener), timeout);
  const PrivateFile file = publish(plan.path, place);
  return meet_over(under(place.word, store), own,
                   {.timeout = timeout, .address = place.host, .serves = true});
}

// torchrun's agent keeps its store over restarts, and a process may join more than once.
Exchange meet_in_agents_store(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  const auto agents = connect_store(own, plan.host, plan.port, timeout);
  const int64_t turn = agents->add(format("{}/turn/{}", plan.prefix, own.rank), 1);
  return meet_over(under(format("{}/{}", plan.prefix, turn), agents), own, {.timeout = timeout});
}

Exchange meet(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  log::debug(format("rendezvous: {}", plan.because));
  switch (plan.how) {
    case Meeting::agent:
      return meet_in_agents_store(plan, own, timeout);
    case Meeting::address:
      return meet_at_address(plan, own, timeout);
    case Meeting::file:
      return meet_by_file(plan, own, timeout);
    default:
      return meet_locally(plan, own, timeout);
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

// Without MPI each rank knows only its own place.
void agree_on_layout(launch::Runtime& runtime) {
  const auto seats = runtime.gather(launch::pack_seat(launch::own_seat(runtime.job())));
  const auto layout = runtime.from_first([&] { return launch::pack_layout(seats); });
  runtime.set_place(launch::place_in(layout, runtime.job().rank));
}

Facts facts_of_job(const Job& job) {
  return {{kJobIdFact, job.job_id}, {kVersionFact, LOCKSTEP_VERSION}};
}

}  // namespace

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
    runtime.meet_in(meet(plan, member_of(job), timeout));
    agree_on_layout(runtime);
    if (plan.how == Meeting::address || plan.how == Meeting::file)
      runtime.meet_in(move_exchange(runtime, timeout));
  }
  agree(runtime, [&] { return facts_of_job(job); });
}

}  // namespace lockstep::comm
