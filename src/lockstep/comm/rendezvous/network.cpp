#include "lockstep/comm/rendezvous/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/run_for.h"

namespace lockstep::comm {
namespace {

const char* const kVariable = "GLOO_SOCKET_IFNAME";
constexpr std::chrono::milliseconds kNameService{5000};  // how long it may take
constexpr uint64_t kOwnFiles = 256;                      // for the program, MPI and libtorch

std::string first_name(const std::string& wanted) {
  return wanted.substr(0, wanted.find(','));
}

std::string reachable_names(const NetworkFacts& facts) {
  std::string names;
  for (const auto& entry : facts.interfaces) {
    if (entry.loopback) continue;
    names += format("{}{} ({})", names.empty() ? "" : ", ", entry.interface, entry.address);
  }
  return names.empty() ? "none" : names;
}

[[noreturn]] void refuse_interface(const NetworkFacts& facts, const std::string& what) {
  throw InputError(what, format("host {}", facts.host),
                   format("set {} to an interface that the other nodes can reach; active on this node: {}",
                          kVariable, reachable_names(facts)))
      .of(Code::network);
}

bool is_loopback(const NetworkFacts& facts, const std::string& address) {
  return names_loopback_itself(address) || std::ranges::any_of(facts.interfaces, [&](const auto& entry) {
           return entry.loopback && entry.address == address;
         });
}

const NetworkAddress* find_interface(const NetworkFacts& facts, const std::string& name) {
  const NetworkAddress* found = nullptr;
  for (const auto& entry : facts.interfaces) {
    if (entry.interface != name) continue;
    if (!found || (found->address.find(':') != std::string::npos)) found = &entry;  // IPv4 before IPv6
  }
  return found;
}

GlooInterface named(const NetworkFacts& facts, bool many_nodes) {
  const std::string name = first_name(facts.wanted);
  const NetworkAddress* found = find_interface(facts, name);
  if (!found) refuse_interface(facts, format("{} is '{}', but there is no such interface", kVariable, name));
  if (many_nodes && found->loopback) {
    refuse_interface(
        facts, format("{} is '{}', the loopback, which ranks on other nodes cannot reach", kVariable, name));
  }
  return {facts.wanted, found->address};
}

bool is_local(const std::vector<NetworkAddress>& interfaces, const std::string& address) {
  return std::ranges::any_of(interfaces, [&](const auto& entry) { return entry.address == address; });
}

// As in gloo: the first address of the host name that this machine can bind. If there is none, gloo silently
// falls back to the loopback, and a job on several nodes hangs.
GlooInterface of_host_name(const NetworkFacts& facts) {
  if (facts.host_addresses.empty()) {
    refuse_interface(
        facts,
        format("the host name '{}' does not resolve, so gloo would only listen on the loopback", facts.host));
  }
  for (const auto& address : facts.host_addresses) {
    if (is_loopback(facts, address)) {
      refuse_interface(
          facts,
          format("the host name '{}' resolves to {}, the loopback, which ranks on other nodes cannot reach",
                 facts.host, address));
    }
    if (is_local(facts.interfaces, address)) return {"", address};
  }
  refuse_interface(facts, format("the host name '{}' resolves to {}, which is not an address of this machine",
                                 facts.host, facts.host_addresses.front()));
}

std::string numeric_address(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* raw = address->sa_family == AF_INET
                        ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                        : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  ::inet_ntop(address->sa_family, raw, text.data(), text.size());
  return text.data();
}

// The number of bits in a mask; 0 without one.
int bits_in(const sockaddr* mask) {
  if (!mask) return 0;
  const bool four = mask->sa_family == AF_INET;
  const auto* bytes =
      four ? reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
           : reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr);
  int bits = 0;
  for (int i = 0; i < (four ? 4 : 16); ++i) bits += std::popcount(bytes[i]);
  return bits;
}

bool is_internet(const sockaddr* address) {
  return address && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

std::vector<NetworkAddress> interfaces_up() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<NetworkAddress> found;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!is_internet(entry->ifa_addr) || !(entry->ifa_flags & IFF_UP)) continue;
    found.push_back({entry->ifa_name, numeric_address(entry->ifa_addr),
                     (entry->ifa_flags & IFF_LOOPBACK) != 0, bits_in(entry->ifa_netmask)});
  }
  return found;
}

Lookup ask_name_service(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) return {code};
  return {0, {list, [](const addrinfo* all) { ::freeaddrinfo(const_cast<addrinfo*>(all)); }}};
}

[[noreturn]] void refuse_listening(const std::string& address, std::uint16_t port, const std::string& why) {
  throw Error(format("cannot listen on {} port {}: {}", address, port, why), "the job's store",
              port == 0 ? "check that the address belongs to this machine"
                        : "choose another MASTER_PORT, or let torchrun choose it");
}

std::uint16_t bound_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

// 0 or errno
int connect_once(int socket, const addrinfo& place, const base::Deadline& deadline) {
  constexpr std::chrono::milliseconds kLongestPoll{1'000'000};
  if (::connect(socket, place.ai_addr, place.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd entry{socket, POLLOUT, 0};
  int ready = 0;
  do ready = ::poll(&entry, 1, static_cast<int>(std::min(deadline.left(), kLongestPoll).count()));
  while (ready < 0 && errno == EINTR);
  if (ready <= 0) return ETIMEDOUT;
  int code = 0;
  socklen_t size = sizeof code;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size);
  return code;
}

}  // namespace

GlooInterface choose_interface(const NetworkFacts& facts, bool many_nodes) {
  if (!facts.wanted.empty()) return named(facts, many_nodes);
  if (!many_nodes) return {"", "127.0.0.1"};
  return of_host_name(facts);
}

GlooInterface own_interface(bool many_nodes) {
  return choose_interface(network_facts(), many_nodes);
}

bool names_loopback_itself(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

bool is_own_address(const std::string& host) {
  const auto addresses = addresses_in(look_up(host, 0, kNameService));
  return !addresses.empty() && !names_loopback_itself(addresses.front()) &&
         is_local(interfaces_up(), addresses.front());
}

NetworkFacts network_facts() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const char* wanted = std::getenv(kVariable);
  return {name.data(), addresses_in(look_up(name.data(), 0, kNameService)), interfaces_up(),
          wanted ? wanted : ""};
}

Lookup look_up(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout) {
  Lookup number = ask_name_service(host, port, AI_NUMERICHOST);
  if (number.code == 0) return number;
  const auto ask = [=] { return ask_name_service(host, port, 0); };
  return base::run_for(timeout, ask).value_or(Lookup{EAI_AGAIN});
}

std::vector<std::string> addresses_in(const Lookup& answer) {
  std::vector<std::string> found;
  for (const addrinfo* entry = answer.addresses.get(); entry; entry = entry->ai_next)
    if (is_internet(entry->ai_addr)) found.push_back(numeric_address(entry->ai_addr));
  return found;
}

Listener listen_on(const std::string& address, std::uint16_t port) {
  const Lookup found = ask_name_service(address, port, 0);
  if (found.code != 0) refuse_listening(address, port, ::gai_strerror(found.code));
  const addrinfo& place = *found.addresses;
  base::Descriptor file(::socket(place.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!file) refuse_listening(address, port, std::strerror(errno));
  const int yes = 1;
  ::setsockopt(file.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(file.number(), place.ai_addr, place.ai_addrlen) != 0 || ::listen(file.number(), SOMAXCONN) != 0)
    refuse_listening(address, port, std::strerror(errno));
  const auto chosen = bound_port(file.number());
  return {std::move(file), chosen};
}

base::Descriptor connect_to(const std::string& host, std::uint16_t port, const base::Deadline& deadline,
                            std::string& why) {
  constexpr std::chrono::milliseconds kRetry{50};
  while (true) {
    const auto found = look_up(host, port, deadline.left());
    if (found.code != 0 && why.empty()) why = ::gai_strerror(found.code);
    for (const addrinfo* place = found.addresses.get(); place; place = place->ai_next) {
      base::Descriptor socket(::socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      const int reason = socket ? connect_once(socket.number(), *place, deadline) : errno;
      if (reason == 0) return socket;
      why = std::strerror(reason);
    }
    if (deadline.passed()) return base::Descriptor();
    std::this_thread::sleep_for(std::min(kRetry, deadline.left()));
  }
}

uint64_t make_room_for_files(uint64_t files) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return files;  // unknown: opening a file will fail if there are too many
  const auto wanted = std::min<rlim_t>(files, limit.rlim_max);
  if (limit.rlim_cur < wanted) {
    const rlim_t before = std::exchange(limit.rlim_cur, wanted);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return before;
  }
  return limit.rlim_cur;
}

uint64_t files_for(const Job& job) {
  const auto world = static_cast<uint64_t>(job.world);
  return kOwnFiles + world + (job.rank == 0 ? world : 0);
}

void check_room_for_gloo(const Job& job) {
  const uint64_t room = make_room_for_files(files_for(job));
  if (room + kOwnFiles >= files_for(job)) return;  // even a program that uses no other files would fail
  throw InputError(format("gloo connects each rank with {} others, but a process may open only {} files here",
                          job.world - 1, room),
                   format("rank {} of {} on host {}", job.rank, job.world, job.host),
                   "choose the backend mpi or nccl, or ask for a higher limit (ulimit -Hn)")
      .of(Code::open_files);
}

}  // namespace lockstep::comm
