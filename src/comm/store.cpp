#include "comm/store.h"

#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <functional>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "comm/interface.h"
#include "comm/libtorch.h"
#include "comm/listen.h"
#include "comm/mpi_join.h"
#include "comm/rendezvous.h"
#include "comm/shared_store.h"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kStoreStays{1000};

struct Opening {
  const Runtime& runtime;
  const Rendezvous& plan;
  Milliseconds timeout;
};

StorePtr open_alone(const Opening&) {
  return c10::make_intrusive<c10d::HashStore>();
}

// What rank 0 makes, on every rank. Where it fails, all ranks throw: nobody is left waiting.
std::string from_rank_zero(const Runtime& runtime, const std::function<std::string()>& make) {
  std::exception_ptr failure;
  std::string text;
  if (runtime.job().rank == 0) {
    try {
      text = make();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      text = std::string("!") + error.what();
    }
  }
  text = runtime.broadcast(text);
  if (failure) std::rethrow_exception(failure);
  if (text.empty() || text[0] == '!') {
    const Job& job = runtime.job();
    throw Error("rank 0 could not open the job's store: " + text.substr(1),
                format("rank {} of {} on host {}", job.rank, job.world, job.host),
                "rank 0's own error says what to do");
  }
  return text;
}

StorePtr open_shared(const Opening& opening) {
  const Job& job = opening.runtime.job();
  std::shared_ptr<SharedMemory> memory;
  StorePtr store;
  const std::string name = from_rank_zero(opening.runtime, [&] {
    memory = std::make_shared<SharedMemory>(SharedMemory::create(SharedStore::bytes_for(job.world)));
    store = SharedStore::create(memory);
    return memory->name();
  });
  if (!memory) {
    if (auto found = SharedMemory::open(name)) memory = std::make_shared<SharedMemory>(std::move(*found));
    if (memory) store = SharedStore::join(memory);
  }
  const auto opened = opening.runtime.all_gather(memory ? "yes" : "no");
  if (memory) memory->unlink();
  for (size_t rank = 0; rank < opened.size(); ++rank) {
    if (opened[rank] == "yes") continue;
    throw Error(format("rank {} cannot see the shared memory of rank 0", rank), format("host {}", job.host),
                "ranks of one node must share /dev/shm: start them in one container, or each container as "
                "its own node");
  }
  return store;
}

c10d::TCPStoreOptions tcp_options(const Opening& opening, std::uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = opening.timeout;
  return options;
}

StorePtr connect_tcp(const Opening& opening, const std::string& host, std::uint16_t port) {
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, tcp_options(opening, port));
  } catch (const std::exception& error) {
    throw Error(
        format("nobody answered at {} port {} within {} s", host, port, opening.timeout.count() / 1000.0),
        format("rank {} of {}", opening.runtime.job().rank, opening.runtime.job().world),
        format("rank 0 did not come, or {} is not reached from this node", host));
  }
}

// c10d's own server would listen on every interface (pytorch#173909); it takes over a socket of ours instead.
StorePtr host_tcp(const Opening& opening, const std::string& address, const Listener& listener) {
  auto options = tcp_options(opening, listener.port);
  options.isServer = true;
  options.masterListenFd = listener.socket;
  options.useLibUV = kUvStoreTakesSocket;
  return c10::make_intrusive<c10d::TCPStore>(address, options);
}

std::string own_address() {
  const char* wanted = std::getenv("GLOO_SOCKET_IFNAME");
  return choose_interface(network_facts(wanted ? wanted : ""), true).address;
}

StorePtr open_tcp_over_mpi(const Opening& opening) {
  StorePtr store;
  const std::string place = from_rank_zero(opening.runtime, [&] {
    const std::string address = own_address();
    const Listener listener = listen_on(address);
    store = host_tcp(opening, address, listener);
    return format("{} {}", listener.port, address);
  });
  if (store) return store;
  return connect_tcp(opening, place.substr(place.find(' ') + 1),
                     static_cast<std::uint16_t>(std::stoi(place)));
}

StorePtr open_tcp_client(const Opening& opening) {
  return connect_tcp(opening, opening.plan.host, opening.plan.port);
}

// Debian's /etc/hosts calls the host's own name 127.0.1.1, where other nodes would knock in vain.
std::string bound_address(const Opening& opening) {
  const bool alone = opening.runtime.job().nodes == 1;
  return !alone && is_loopback_name(opening.plan.host) ? "0.0.0.0" : opening.plan.host;
}

// One server a process: a second group of the same job must find the first one's, not bind the port again.
StorePtr open_tcp_host(const Opening& opening) {
  static std::mutex mutex;
  static std::map<std::string, StorePtr> hosted;
  const std::lock_guard<std::mutex> guard(mutex);
  const std::string place = format("{}:{}", opening.plan.host, opening.plan.port);
  auto& store = hosted[place];
  if (!store)
    store = host_tcp(opening, opening.plan.host, listen_on(bound_address(opening), opening.plan.port));
  return connect_tcp(opening, opening.plan.host, opening.plan.port);
}

StorePtr open_file(const Opening& opening) {
  return c10::make_intrusive<c10d::FileStore>(opening.plan.path, opening.runtime.job().world);
}

const std::map<Meeting, std::function<StorePtr(const Opening&)>> kOpeners = {
    {Meeting::alone, open_alone},
    {Meeting::shared_memory, open_shared},
    {Meeting::tcp_over_mpi, open_tcp_over_mpi},
    {Meeting::tcp_client, open_tcp_client},
    {Meeting::tcp_host, open_tcp_host},
    {Meeting::file, open_file},
};

// A store may outlive one call of connect(): each call of a rank gets the next number.
StorePtr with_prefix(const StorePtr& store, const Rendezvous& plan, int rank) {
  const int64_t turn = store->add(format("{}/turn/{}", plan.prefix, rank), 1);
  return c10::make_intrusive<c10d::PrefixStore>(format("{}/{}", plan.prefix, turn), store);
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
        "look in the log for an earlier error of that rank; raise launch.join_timeout if it is only slow");
  }
}

// The words of a stage that all have reached, by rank.
std::vector<std::string> words_of(c10d::Store& store, const std::string& stage, int world) {
  std::vector<std::string> words;
  if (store.hasExtendedApi()) {
    for (const auto& word : store.multiGet(keys_of(stage, world)))
      words.emplace_back(word.begin(), word.end());
  } else {
    for (const auto& key : keys_of(stage, world)) words.push_back(store.get_to_str(key));
  }
  return words;
}

std::string address_for_others(const Job& job) {
  try {
    return job.nodes > 1 ? own_address() : "";
  } catch (const InputError&) {
    return "";  // gloo has asked before this; MPI finds its own way
  }
}

}  // namespace

StorePtr open_store(const Runtime& runtime, Milliseconds join_timeout) {
  const Rendezvous plan = plan_rendezvous(current_environment(), runtime.job(), runtime.has_mpi());
  if (runtime.has_mpi()) join_over_mpi(runtime, join_timeout);
  log::debug(format("rendezvous: {}", plan.because));
  StorePtr store = kOpeners.at(plan.how)({runtime, plan, join_timeout});
  store->setTimeout(join_timeout);
  return with_prefix(store, plan, runtime.job().rank);
}

std::vector<Peer> meet(c10d::Store& store, const Runtime& runtime, Milliseconds join_timeout) {
  const Job& job = runtime.job();
  const std::string own = pack(own_peer(job.rank, job.node_rank, job.host, address_for_others(job)));
  if (!runtime.has_mpi()) reach(store, job, "here", own, join_timeout);
  const auto words = runtime.has_mpi() ? runtime.all_gather(own) : words_of(store, "here", job.world);
  std::vector<Peer> peers;
  for (const auto& word : words) peers.push_back(unpack_peer(word));
  return peers;
}

void wait_until_all_are_connected(c10d::Store& store, const Job& job, Milliseconds join_timeout) {
  reach(store, job, "connected", "yes", join_timeout);
}

}  // namespace lockstep::comm
