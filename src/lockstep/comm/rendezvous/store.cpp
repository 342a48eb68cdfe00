#include "lockstep/comm/rendezvous/store.h"

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/run_for.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/rendezvous/private_folder.h"

namespace lockstep::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Peer, rank, node, pid, pid_space, host, address)

namespace {

using Milliseconds = std::chrono::milliseconds;

c10d::TCPStoreOptions tcp_options(std::uint16_t port, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = timeout;
  return options;
}

// libtorch 2.7's server over libuv, which has not used the socket then
bool refuses_sockets(const std::exception& error) {
  return std::string_view(error.what()).find("does not support initialization with an listen fd") !=
         std::string_view::npos;
}

// Null if a rank cannot see rank 0's file or rank 0 cannot make one: then the ranks use sockets.
StorePtr open_local(const launch::Runtime& runtime) {
  std::optional<LocalStore> own;
  std::string path;
  if (runtime.job().rank == 0) {
    try {
      // in a folder of its own, because another user may have made the usual one
      path = private_path(launch::current_environment(), "store");
      path.insert(path.rfind('/'), "-" + base::random_word());
      own.emplace(path);
    } catch (const Error& error) {
      log::debug(format("cannot keep the job's store in a file: {}", describe(error)));
      path.clear();
    }
  }
  path = runtime.broadcast(path);
  if (path.empty()) return nullptr;
  StorePtr store;
  try {
    store = own ? own->store() : find_local_store(path);
  } catch (const Error& error) {
    log::debug(format("cannot see rank 0's store: {}", describe(error)));
  }
  const auto opened = runtime.all_gather(store ? "yes" : "no");
  return std::find(opened.begin(), opened.end(), "no") == opened.end() ? store : nullptr;
}

// All ranks can reach the address at which they have met.
std::string address_for_all(const launch::Runtime& runtime) {
  if (runtime.job().nodes == 1) return "127.0.0.1";
  const launch::TextExchange* exchange = runtime.exchange();
  const std::string met = exchange ? exchange->address() : "";
  return met.empty() ? own_interface(true).address : met;
}

// On a port that the kernel chooses. All ranks throw rank 0's error.
StorePtr open_tcp(const launch::Runtime& runtime, Milliseconds timeout) {
  StorePtr store;
  const auto serve = [&] {
    const std::string address = address_for_all(runtime);
    Listener listener = listen_on(address);
    const auto port = listener.port;
    store = serve_store(address, std::move(listener), timeout);
    return base::as_line(nlohmann::json{{"host", address}, {"port", port}});
  };
  const auto place = base::from_rank<nlohmann::json>(runtime.from_first(serve));
  if (store) return store;
  return connect_store(member_of(runtime.job()), place.at("host"), place.at("port"), timeout);
}

std::string address_for_others(const Job& job) {
  try {
    return job.nodes > 1 ? own_interface(true).address : "";
  } catch (const InputError&) {
    return "";  // gloo has checked this before; MPI needs no address
  }
}

bool torch_may_log() {
  const char* trace = std::getenv("LOCKSTEP_TRACE");
  return (trace && std::string_view(trace) == "1") || std::getenv("TORCH_CPP_LOG_LEVEL");
}

}  // namespace

StorePtr open_store(const launch::Runtime& runtime, Milliseconds timeout) {
  const Job& job = runtime.job();
  if (job.world == 1) return c10::make_intrusive<c10d::HashStore>();
  StorePtr store = job.nodes == 1 ? open_local(runtime) : nullptr;
  if (!store) store = open_tcp(runtime, timeout);
  store->setTimeout(timeout);
  return store;
}

// c10d's own server would listen on every interface (pytorch#173909), so it gets a socket from us.
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

// c10d's errors for an unknown name or a refused connection are hard to read, so this checks first.
StorePtr connect_store(const Member& own, const std::string& host, std::uint16_t port, Milliseconds timeout) {
  const base::Deadline deadline(timeout);
  const auto place = format("{} port {}", base::printable(host), port);
  std::string why;
  if (!connect_to(host, port, deadline, why))
    throw Error(format("rank 0 did not answer at {} within {} ({})", place, base::in_seconds(timeout), why),
                place_of(own),
                format("look for an error of rank 0 in the log, and check that this node can reach {}",
                       base::printable(host)))
        .of(Code::not_joined, {0});
  const auto connect = [=]() -> StorePtr {
    return c10::make_intrusive<c10d::TCPStore>(host, tcp_options(port, timeout));
  };
  try {
    // c10d's client may wait longer than its timeout for a service that accepts it and sends nothing
    auto store = base::run_for(deadline.left(), connect);
    if (store) return *store;
  } catch (const std::exception& error) {
    log::debug(format("{}: {}", place, error.what()));
  }
  throw Error(format("{} accepted the connection, but did not answer as rank 0 of this job within {}", place,
                     base::in_seconds(timeout)),
              place_of(own),
              "check whether rank 0 is stopped. If another service uses that port, set a different "
              "MASTER_PORT on all "
              "ranks; torchrun chooses one automatically")
      .of(Code::not_joined, {0});
}

std::vector<Peer> introduce(const launch::Runtime& runtime) {
  const Job& job = runtime.job();
  const Peer own{
      .rank = job.rank, .node = job.node_rank, .host = job.host, .address = address_for_others(job)};
  std::vector<Peer> peers;
  for (const auto& text : runtime.all_gather(base::as_line(nlohmann::json(own))))
    peers.push_back(base::from_rank<Peer>(text));
  return peers;
}

void wait_until_all_are_connected(const StorePtr& store, const Job& job, Milliseconds timeout) {
  const auto exchange = exchange_over(c10::make_intrusive<c10d::PrefixStore>("connected", store),
                                      member_of(job), {.timeout = timeout, .serves = job.rank == 0});
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
