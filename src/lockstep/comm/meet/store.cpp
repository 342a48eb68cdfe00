#include "lockstep/comm/meet/store.h"

#include <unistd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <functional>
#include <string_view>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/meet/attempt_store.h"
#include "lockstep/comm/meet/exchange_client.h"
#include "lockstep/comm/meet/exchange_server.h"
#include "lockstep/comm/meet/interface.h"
#include "lockstep/comm/meet/listen.h"
#include "lockstep/comm/meet/meeting_file.h"
#include "lockstep/comm/meet/quiet.h"
#include "lockstep/comm/meet/rendezvous.h"
#include "lockstep/comm/meet/shared_store.h"
#include "lockstep/comm/meet/store_exchange.h"
#include "lockstep/comm/meet/wire.h"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kStoreStays{1000};
constexpr char kMade = '+', kFailedTo = '-';

struct Opening {
  const Job& job;
  const launch::Runtime* runtime;  // once the ranks have met
  Milliseconds timeout;
};

// What rank 0 makes, on every rank. Where it fails, all ranks throw: nobody is left waiting.
std::string from_rank_zero(const launch::Runtime& runtime, const std::function<std::string()>& make) {
  std::string text;
  if (runtime.job().rank == 0) {
    try {
      text = kMade + make();
    } catch (const Error& error) {
      text = kFailedTo + base::pack_error(error);
    } catch (const std::exception& error) {
      text = kFailedTo + base::pack_error(Error(describe(error), "rank 0, the job's store"));
    }
  }
  text = runtime.broadcast(text);
  if (text.empty() || text[0] != kMade) base::throw_packed_error(text.substr(text.empty() ? 0 : 1));
  return text.substr(1);
}

StorePtr open_tcp(const Opening& opening, const std::function<std::string()>& address);

// Nothing where /dev/shm is full or not there: sockets serve as well.
std::shared_ptr<base::SharedMemory> make_memory(size_t bytes) {
  try {
    return std::make_shared<base::SharedMemory>(base::SharedMemory::create(bytes));
  } catch (const Error& error) {
    log::debug(format("the job's store is not in shared memory: {}", error.what()));
    return nullptr;
  }
}

StorePtr open_shared(const Opening& opening) {
  const Job& job = opening.job;
  std::shared_ptr<base::SharedMemory> memory;
  StorePtr store;
  const std::string name = from_rank_zero(*opening.runtime, [&] {
    memory = make_memory(SharedStore::bytes_for(job.world));
    if (memory) store = SharedStore::create(memory);
    return memory ? memory->name() : "";
  });
  if (name.empty()) return open_tcp(opening, [] { return std::string("127.0.0.1"); });
  if (!memory) {
    if (auto found = base::SharedMemory::open(name))
      memory = std::make_shared<base::SharedMemory>(std::move(*found));
    if (memory) store = SharedStore::join(memory);
  }
  const auto opened = opening.runtime->all_gather(memory ? "yes" : "no");
  if (memory) memory->unlink();
  // containers on one host may share its network and not its /dev/shm
  const bool all = std::all_of(opened.begin(), opened.end(), [](const auto& word) { return word == "yes"; });
  return all ? store : open_tcp(opening, [] { return std::string("127.0.0.1"); });
}

c10d::TCPStoreOptions tcp_options(const Opening& opening, std::uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = opening.timeout;
  return options;
}

std::string place_of_job(const Job& job) {
  return format("rank {} of {} on host {}", job.rank, job.world, job.host);
}

// c10d's own client retries slowly, and its errors do not tell a silent port from a foreign service.
void wait_for_server(const Opening& opening, const std::string& host, std::uint16_t port) {
  const auto deadline = std::chrono::steady_clock::now() + opening.timeout;
  while (true) {
    try {
      call(host, port, deadline);
      return;
    } catch (const Unanswered& unanswered) {
      if (std::chrono::steady_clock::now() >= deadline) {
        throw Error(format("nobody answered at {} port {} within {} s ({})", host, port,
                           opening.timeout.count() / 1000.0, unanswered.why),
                    place_of_job(opening.job),
                    format("rank 0 did not come, or {} is not reached from this node", host))
            .of(Code::not_joined, {0});
      }
    }
    std::this_thread::sleep_for(kRetry);
  }
}

StorePtr connect_tcp(const Opening& opening, const std::string& host, std::uint16_t port) {
  wait_for_server(opening, host, port);
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, tcp_options(opening, port));
  } catch (const std::exception&) {
    throw Error(format("something else than the job's store answers at {} port {}", host, port),
                place_of_job(opening.job),
                "choose another MASTER_PORT, the same on every rank; torchrun chooses one by itself")
        .of(Code::not_joined);
  }
}

// libtorch 2.7's server over libuv, which leaves the socket as it was
bool refuses_sockets(const std::exception& error) {
  return std::string_view(error.what()).find("does not support initialization with an listen fd") !=
         std::string_view::npos;
}

// c10d's own server would listen on every interface (pytorch#173909); it takes over a socket of ours instead.
StorePtr host_tcp(const Opening& opening, const std::string& address, const Listener& listener) {
  auto options = tcp_options(opening, listener.port);
  options.isServer = true;
  options.masterListenFd = listener.socket;
  options.useLibUV = true;
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

// On the address that `address` names on rank 0, and a port that the kernel chose.
StorePtr open_tcp(const Opening& opening, const std::function<std::string()>& address) {
  StorePtr store;
  const auto place = base::unpack_texts(from_rank_zero(*opening.runtime, [&] {
    const std::string own = address();
    const Listener listener = listen_on(own);
    store = host_tcp(opening, own, listener);
    return base::pack_texts({own, std::to_string(listener.port)});
  }));
  if (store) return store;
  return connect_tcp(opening, place.at(0), static_cast<std::uint16_t>(std::stoi(place.at(1))));
}

// The address at which the ranks have met is one that all reach.
std::string address_for_all(const launch::Runtime& runtime) {
  const launch::TextExchange* exchange = runtime.exchange();
  const std::string met = exchange ? exchange->address() : "";
  return met.empty() ? own_address() : met;
}

// A store may outlive one call of connect(): each call of a rank gets the next number.
StorePtr with_prefix(const StorePtr& store, const std::string& prefix, int rank) {
  const int64_t turn = store->add(format("{}/turn/{}", prefix, rank), 1);
  return c10::make_intrusive<AttemptStore>(format("{}/{}", prefix, turn), store);
}

StorePtr open_agents(const Opening& opening, const Rendezvous& plan) {
  StorePtr store = connect_tcp(opening, plan.host, plan.port);
  store->setTimeout(opening.timeout);
  return with_prefix(store, plan.prefix, opening.job.rank);
}

std::string key_of(const std::string& stage, int rank) {
  return format("{}/{}", stage, rank);
}

std::vector<std::string> keys_of(const std::string& stage, int world) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back(key_of(stage, rank));
  return keys;
}

std::vector<int> missing_of(c10d::Store& store, const std::vector<std::string>& keys) {
  std::vector<int> missing;
  for (size_t rank = 0; rank < keys.size(); ++rank) {
    if (!store.check({keys[rank]})) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

// Leaves a word at this stage and waits for everybody's. One who comes costs the store the same in any world:
// the last to come tells all.
void reach(c10d::Store& store, const Job& job, const std::string& stage, const std::string& word,
           Milliseconds timeout) {
  store.set(key_of(stage, job.rank), word);
  if (store.add(stage + "/come", 1) == job.world) store.set(stage + "/all", std::string("come"));
  try {
    store.wait({stage + "/all"}, timeout);
  } catch (const std::exception&) {
    const auto missing = missing_of(store, keys_of(stage, job.world));
    if (missing.empty()) throw;
    // rank 0 may hold the store: the others are about to ask it the same
    if (job.rank == 0) std::this_thread::sleep_for(kStoreStays);
    throw Error(
        format("{} did not come to join the group within {} s", rank_list(missing), timeout.count() / 1000.0),
        format("rank {} of {} on host {}", job.rank, job.world, job.host),
        "look in the log for an earlier error of that rank; raise launch.join_timeout if it is only slow")
        .of(Code::not_joined, missing);
  }
}

std::string address_for_others(const Job& job) {
  try {
    return job.nodes > 1 ? own_address() : "";
  } catch (const InputError&) {
    return "";  // gloo has asked before this; MPI finds its own way
  }
}

// Debian's /etc/hosts gives the host's own name as 127.0.1.1, where other nodes cannot connect; and behind a
// service's address rank 0 has another one of its own.
Listener listen_at(const std::string& host, std::uint16_t port) {
  if (is_loopback_name(host) || !is_own_address(host)) return listen_on("0.0.0.0", port);
  return listen_on(host, port);
}

std::unique_ptr<launch::TextExchange> serve(const Rendezvous& plan, const ExchangeOptions& options) {
  const MeetingSocket socket(plan.socket);
  base::Descriptor port;  // for ranks on other machines
  MeetingPlace place;
  std::optional<MeetingFile> file;
  if (!plan.file.empty()) {
    place.host = own_address();
    const auto listener = listen_on(place.host);
    port = base::Descriptor(listener.socket);
    place.port = listener.port;
    place.word = random_word();
    file.emplace(plan.file, place);
  } else if (!plan.host.empty() && !names_loopback_itself(plan.host)) {
    port = base::Descriptor(listen_at(plan.host, plan.port).socket);
  }
  return serve_exchange({socket.number(), port.number()}, place.word, options);
}

// On rank 0's own machine a rank uses the socket alone: any user may listen at the port.
std::optional<MeetingPlace> find(const Rendezvous& plan, Milliseconds timeout) {
  MeetingPlace place{.host = plan.host, .port = plan.port};
  if (!plan.file.empty()) {
    const auto found = read_meeting_file(plan.file);
    if (!found) return std::nullopt;
    place = *found;
  }
  place.socket = plan.socket;
  if (!place.host.empty() && is_own_address(place.host, timeout)) place.host.clear();
  return place;
}

}  // namespace

std::unique_ptr<launch::TextExchange> open_exchange(const Job& job, Milliseconds timeout) {
  const Rendezvous plan = plan_rendezvous(launch::current_environment(), job, false);
  log::debug(format("rendezvous: {}", plan.because));
  if (plan.how == Meeting::agent) {
    const QuietJoin quiet;
    return exchange_over(open_agents({job, nullptr, timeout}, plan), job, timeout);
  }
  const ExchangeOptions options{
      .rank = job.rank, .world = job.world, .host = job.host, .job_id = job.job_id, .timeout = timeout};
  if (job.rank == 0) return serve(plan, options);
  return join_exchange([&] { return find(plan, timeout); }, options);
}

StorePtr open_store(const launch::Runtime& runtime, Milliseconds join_timeout) {
  const Job& job = runtime.job();
  if (job.world == 1) return c10::make_intrusive<c10d::HashStore>();
  const Rendezvous plan = plan_rendezvous(launch::current_environment(), job, runtime.has_mpi());
  const Opening opening{job, &runtime, join_timeout};
  if (plan.how == Meeting::agent) return open_agents(opening, plan);
  StorePtr store =
      job.nodes == 1 ? open_shared(opening) : open_tcp(opening, [&] { return address_for_all(runtime); });
  store->setTimeout(join_timeout);
  return store;
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

void wait_until_all_are_connected(c10d::Store& store, const Job& job, Milliseconds join_timeout) {
  reach(store, job, "connected", "yes", join_timeout);
}

}  // namespace lockstep::comm
