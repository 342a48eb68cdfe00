#include "lockstep/comm/meet/store.h"

#include <c10/util/Logging.h>
#include <poll.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <future>
#include <string_view>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/shared_memory.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/interface.h"
#include "lockstep/comm/meet/lookup.h"
#include "lockstep/comm/meet/meeting_file.h"
#include "lockstep/comm/meet/rendezvous.h"
#include "lockstep/comm/meet/shared_store.h"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr Milliseconds kStoreAnswers{1000};    // far longer than a store takes
constexpr Milliseconds kGreeting{1000};        // for another service to answer
constexpr Milliseconds kStrangersStore{5000};  // for a store to show that it is rank 0's
constexpr Milliseconds kRetry{50};
constexpr Milliseconds kLocalRetry{5};
constexpr size_t kQuoted = 40;

StorePtr under(const std::string& prefix, const StorePtr& store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

c10d::TCPStoreOptions tcp_options(std::uint16_t port, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = timeout;
  return options;
}

// c10d's client waits for ever for a service that accepts a connection and says nothing: a thread connects
// that can be left behind.
std::future<StorePtr> connect_aside(const std::string& host, std::uint16_t port, Milliseconds timeout) {
  auto answer = std::make_shared<std::promise<StorePtr>>();
  auto future = answer->get_future();
  std::thread([=] {
    try {
      answer->set_value(c10::make_intrusive<c10d::TCPStore>(host, tcp_options(port, timeout)));
    } catch (const std::exception&) {
      answer->set_exception(std::current_exception());
    }
  }).detach();
  return future;
}

// The first line that a service says, which most do at once or when they are asked; c10d's store says
// nothing.
std::string greeting(const base::Descriptor& socket) {
  constexpr std::string_view kRequest = "GET / HTTP/1.0\r\n\r\n";
  ::send(socket.number(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
  pollfd entry{socket.number(), POLLIN, 0};
  if (::poll(&entry, 1, static_cast<int>(kGreeting.count())) <= 0) return "";
  std::array<char, 256> text{};
  const auto size = ::recv(socket.number(), text.data(), text.size(), 0);
  const std::string_view said(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  return base::printable(std::string(said.substr(0, said.find_first_of("\r\n"))), kQuoted);
}

[[noreturn]] void refuse_silent(const Member& own, const std::string& place, Milliseconds timeout) {
  throw Error(
      format("something answers at {}, but not as rank 0 of this job within {}", place, seconds(timeout)),
      place_of(own), "is that port another service's, or is rank 0 stopped? Choose another MASTER_PORT if so")
      .of(Code::not_joined, {0});
}

[[noreturn]] void refuse_foreign(const Member& own, const std::string& place, const std::string& said) {
  throw InputError(
      format("something else than this job answers at {}{}", place, said.empty() ? "" : ": '" + said + "'"),
      place_of(own), "choose another MASTER_PORT, the same on every rank; torchrun chooses one by itself")
      .of(Code::not_joined);
}

// libtorch 2.7's server over libuv, which leaves the socket as it was
bool refuses_sockets(const std::exception& error) {
  return std::string_view(error.what()).find("does not support initialization with an listen fd") !=
         std::string_view::npos;
}

// c10d's own server would listen on every interface (pytorch#173909); it takes over a socket of ours instead.
StorePtr serve_store(const std::string& address, Listener listener, Milliseconds timeout) {
  auto options = tcp_options(listener.port, timeout);
  options.isServer = true;
  options.masterListenFd = listener.socket.release();
  try {
    return c10::make_intrusive<c10d::TCPStore>(address, options);
  } catch (const std::exception& error) {
    if (!refuses_sockets(error)) throw;
    options.useLibUV = false;
    return c10::make_intrusive<c10d::TCPStore>(address, options);
  }
}

std::string own_address() {
  const char* wanted = std::getenv("GLOO_SOCKET_IFNAME");
  return choose_interface(network_facts(wanted ? wanted : ""), true).address;
}

// What rank 0 makes, on every rank; its error is thrown on all.
std::string from_rank_zero(const launch::Runtime& runtime, const std::function<std::string()>& make) {
  return base::unpack_outcome(runtime.broadcast(runtime.job().rank == 0 ? base::pack_outcome(make) : ""));
}

// Nothing where /dev/shm is full or not there: sockets serve as well.
std::shared_ptr<base::SharedMemory> make_memory(size_t bytes) {
  try {
    return std::make_shared<base::SharedMemory>(base::SharedMemory::create(bytes));
  } catch (const Error& error) {
    log::debug(format("the job's store is not in shared memory: {}", error.what()));
    return nullptr;
  }
}

std::shared_ptr<base::SharedMemory> find_memory(const std::string& name) {
  auto found = base::SharedMemory::open(name);
  return found ? std::make_shared<base::SharedMemory>(std::move(*found)) : nullptr;
}

// Null where a rank does not see it: containers on one host may share its network and not its /dev/shm.
StorePtr open_shared(const launch::Runtime& runtime) {
  const bool first = runtime.job().rank == 0;
  std::shared_ptr<base::SharedMemory> memory;
  StorePtr store;
  const auto with = [&](auto* make) {
    if (memory) store = make({std::shared_ptr<void>(memory, memory->data()), memory->size()});
  };
  if (first) memory = make_memory(SharedStore::bytes_for(runtime.job().world));
  if (first) with(&SharedStore::create);
  const std::string name = runtime.broadcast(memory ? memory->name() : "");
  if (name.empty()) return nullptr;
  if (!first) memory = find_memory(name);
  if (!first) with(&SharedStore::join);
  const auto opened = runtime.all_gather(memory ? "yes" : "no");
  if (memory) memory->unlink();
  return std::find(opened.begin(), opened.end(), "no") == opened.end() ? store : nullptr;
}

// On the address that `address` names on rank 0, and a port that the kernel chose.
StorePtr open_tcp(const launch::Runtime& runtime, Milliseconds timeout,
                  const std::function<std::string()>& address) {
  StorePtr store;
  const auto place = base::unpack_texts(from_rank_zero(runtime, [&] {
    const std::string own = address();
    Listener listener = listen_on(own);
    const auto port = std::to_string(listener.port);
    store = serve_store(own, std::move(listener), timeout);
    return base::pack_texts({own, port});
  }));
  if (store) return store;
  return connect_store(member_of(runtime.job()), place.at(0),
                       static_cast<std::uint16_t>(std::stoi(place.at(1))), timeout);
}

// The address at which the ranks have met is one that all reach.
std::string address_for_all(const launch::Runtime& runtime) {
  if (runtime.job().nodes == 1) return "127.0.0.1";
  const launch::TextExchange* exchange = runtime.exchange();
  const std::string met = exchange ? exchange->address() : "";
  return met.empty() ? own_address() : met;
}

std::string address_for_others(const Job& job) {
  try {
    return job.nodes > 1 ? own_address() : "";
  } catch (const InputError&) {
    return "";  // gloo has asked before this; MPI finds its own way
  }
}

std::unique_ptr<launch::TextExchange> meet_locally(const Rendezvous& plan, const Member& own,
                                                   Milliseconds timeout) {
  if (own.rank == 0) {
    const LocalMeeting meeting(plan.path);
    return meet_over(meeting.store(), own, {.timeout = timeout, .one_machine = true});
  }
  for (const auto deadline = Clock::now() + timeout; Clock::now() < deadline;) {
    if (const auto store = find_local_store(plan.path))
      return meet_over(store, own, {.timeout = timeout, .one_machine = true});
    std::this_thread::sleep_for(kLocalRetry);
  }
  throw Error(format("rank 0 did not come within {}: nobody waits at {}", seconds(timeout),
                     base::printable(plan.path)),
              place_of(own),
              "look in the log for an earlier error of rank 0; ranks on one machine need the same TMPDIR, "
              "MASTER_ADDR and MASTER_PORT")
      .of(Code::not_joined, {0});
}

// Rank 0 writes its name as soon as its store is up.
bool has_rank_zero(const StorePtr& store, Milliseconds timeout) {
  try {
    store->wait({kRankZeroKey}, std::min(timeout, kStrangersStore));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Debian's /etc/hosts gives the host's own name as 127.0.1.1, where other nodes cannot connect; and behind a
// service's address rank 0 has another one of its own: then rank 0 listens on all.
std::unique_ptr<launch::TextExchange> meet_at_address(const Rendezvous& plan, const Member& own,
                                                      Milliseconds timeout) {
  if (own.rank != 0) {
    const auto store = under(plan.prefix, connect_store(own, plan.host, plan.port, timeout));
    if (!has_rank_zero(store, timeout)) {
      refuse_foreign(own, format("{} port {}", base::printable(plan.host), plan.port),
                     "the store of another program");
    }
    return meet_over(store, own, {.timeout = timeout});
  }
  const bool one = !is_loopback_name(plan.host) && is_own_address(plan.host);
  auto store =
      serve_store(one ? plan.host : "127.0.0.1", listen_on(one ? plan.host : "0.0.0.0", plan.port), timeout);
  return meet_over(under(plan.prefix, store), own,
                   {.timeout = timeout, .address = one ? plan.host : "", .serves = true});
}

// What an earlier start has left may be another service's port by now: then the file is read again.
StorePtr find_by_file(const Rendezvous& plan, const Member& own, Milliseconds timeout) {
  std::string why = "it has not written its address";
  for (const auto deadline = Clock::now() + timeout; Clock::now() < deadline;
       std::this_thread::sleep_for(kRetry)) {
    const auto place = read_meeting_file(plan.path);
    if (!place) continue;
    try {
      auto store = under(place->word,
                         connect_store(own, place->host, place->port, std::min(timeout, kStrangersStore)));
      if (has_rank_zero(store, timeout)) return store;
      why = format("{} port {} is another program's", place->host, place->port);
    } catch (const std::exception& error) {
      why = error.what();
    }
  }
  throw Error(format("rank 0 did not come within {}: {}", seconds(timeout), why), place_of(own),
              "look in the log for an earlier error of rank 0; raise launch.join_timeout if it is only slow")
      .of(Code::not_joined, {0});
}

std::unique_ptr<launch::TextExchange> meet_by_file(const Rendezvous& plan, const Member& own,
                                                   Milliseconds timeout) {
  if (own.rank != 0) return meet_over(find_by_file(plan, own, timeout), own, {.timeout = timeout});
  MeetingPlace place{.host = own_address(), .word = random_word()};
  Listener listener = listen_on(place.host);
  place.port = listener.port;
  auto store = serve_store(place.host, std::move(listener), timeout);
  const MeetingFile file(plan.path, place);
  return meet_over(under(place.word, store), own,
                   {.timeout = timeout, .address = place.host, .serves = true});
}

// torchrun's agent keeps its store from restart to restart, and a process may meet more than once.
std::unique_ptr<launch::TextExchange> meet_in_agents_store(const Rendezvous& plan, const Member& own,
                                                           Milliseconds timeout) {
  const auto agents = connect_store(own, plan.host, plan.port, timeout);
  const int64_t turn = agents->add(format("{}/turn/{}", plan.prefix, own.rank), 1);
  return meet_over(under(format("{}/{}", plan.prefix, turn), agents), own, {.timeout = timeout});
}

bool torch_may_log() {
  const char* trace = std::getenv("LOCKSTEP_TRACE");
  return (trace && std::string_view(trace) == "1") || std::getenv("TORCH_CPP_LOG_LEVEL");
}

}  // namespace

std::unique_ptr<launch::TextExchange> open_exchange(const Job& job, Milliseconds timeout) {
  const Rendezvous plan = plan_rendezvous(launch::current_environment(), job, false);
  log::debug(format("rendezvous: {}", plan.because));
  const Member own = member_of(job);
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

StorePtr open_store(const launch::Runtime& runtime, Milliseconds timeout) {
  const Job& job = runtime.job();
  if (job.world == 1) return c10::make_intrusive<c10d::HashStore>();
  StorePtr store = job.nodes == 1 ? open_shared(runtime) : nullptr;
  if (!store) store = open_tcp(runtime, timeout, [&] { return address_for_all(runtime); });
  store->setTimeout(timeout);
  return store;
}

std::unique_ptr<launch::TextExchange> leave_port(const launch::Runtime& runtime, Milliseconds timeout) {
  std::string address;
  auto store = open_tcp(runtime, timeout, [&] { return address = address_for_all(runtime); });
  return exchange_over(std::move(store), member_of(runtime.job()),
                       {.timeout = timeout, .address = address, .serves = runtime.job().rank == 0});
}

StorePtr connect_store(const Member& own, const std::string& host, std::uint16_t port, Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const auto place = format("{} port {}", base::printable(host), port);
  std::string why;
  const base::Descriptor probe = connect_to(host, port, deadline, why);
  if (!probe) {
    throw Error(format("nobody answered at {} within {} ({})", place, seconds(timeout), why), place_of(own),
                format("rank 0 did not come, or {} is not reached from this node", base::printable(host)))
        .of(Code::not_joined, {0});
  }
  auto store = connect_aside(host, port, timeout);
  const auto ready = [&](Clock::time_point until) {
    return store.wait_until(until) == std::future_status::ready;
  };
  std::string said;
  if (!ready(std::min(deadline, Clock::now() + kStoreAnswers))) {
    said = greeting(probe);
    if (said.empty() && !ready(deadline)) refuse_silent(own, place, timeout);
  }
  if (!said.empty()) refuse_foreign(own, place, said);
  try {
    return store.get();
  } catch (const std::exception& error) {
    log::debug(format("{}: {}", place, error.what()));
    refuse_foreign(own, place, greeting(probe));
  }
}

std::vector<Peer> introduce(const launch::Runtime& runtime) {
  const Job& job = runtime.job();
  std::vector<Peer> peers;
  for (const auto& word :
       runtime.all_gather(pack(own_peer(job.rank, job.node_rank, job.host, address_for_others(job))))) {
    peers.push_back(unpack_peer(word));
  }
  return peers;
}

void wait_until_all_are_connected(const StorePtr& store, const Job& job, Milliseconds timeout) {
  const auto exchange =
      exchange_over(under("connected", store), member_of(job), {.timeout = timeout, .serves = job.rank == 0});
  exchange->gather("");
  exchange->broadcast("");
}

QuietJoin::QuietJoin() : before_(FLAGS_caffe2_log_level) {
  if (!torch_may_log()) FLAGS_caffe2_log_level = std::max(before_, static_cast<int>(c10::GLOG_FATAL));
}

QuietJoin::~QuietJoin() {
  FLAGS_caffe2_log_level = before_;
}

}  // namespace lockstep::comm
