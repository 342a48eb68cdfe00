#include "lockstep/comm/watch/peer_connections.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "lockstep/base/text.h"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr int kAskings = 6;
constexpr int kKernelsPatience = 100;  // unanswered probes; PeerConnections gives up long before
constexpr Milliseconds kLongestPause{1000};

std::string plain_address(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  if (address.ss_family == AF_INET) ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  if (address.ss_family == AF_INET6) ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  const std::string mapped = "::ffff:", full = text;
  const bool is_v4 = full.starts_with(mapped) && full.find('.') != std::string::npos;
  return is_v4 ? full.substr(mapped.size()) : full;
}

using AddressOf = int (*)(int, sockaddr*, socklen_t*);

std::string address(int socket, AddressOf ask) {
  sockaddr_storage found{};
  socklen_t size = sizeof found;
  return ask(socket, reinterpret_cast<sockaddr*>(&found), &size) == 0 ? plain_address(found) : "";
}

std::optional<Connection> connection_at(int descriptor) {
  int type = 0;
  socklen_t size = sizeof type;
  struct stat facts {};
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return {};
  const std::string there = address(descriptor, ::getpeername);
  if (there.empty() || ::fstat(descriptor, &facts) != 0) return {};
  return Connection{there, there == address(descriptor, ::getsockname), facts.st_ino};
}

bool is_open(int descriptor, const Connection& connection) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 && S_ISSOCK(facts.st_mode) && facts.st_ino == connection.socket;
}

// readdir, because libtorch has its own copy of std::filesystem
std::vector<int> open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  std::vector<int> numbers;
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr)
    if (const auto number = base::parse_number(entry->d_name)) numbers.push_back(*number);
  return numbers;
}

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);  // a socket that refuses is not probed
}

void ask_every(int socket, Milliseconds pause) {
  const int seconds = std::max(1, static_cast<int>(pause.count() / 1000));
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kKernelsPatience);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

// A peer that reads nothing still acknowledges. TCP_USER_TIMEOUT also ends connections to stopped processes.
bool is_silent(int socket, Milliseconds silence) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const bool asked_in_vain = info.tcpi_retransmits > 1 || info.tcpi_probes > 1;
  return asked_in_vain && Milliseconds(info.tcpi_last_ack_recv) >= silence;
}

}  // namespace

Connections connections() {
  Connections found;
  for (const int descriptor : open_descriptors())
    if (auto connection = connection_at(descriptor)) found.emplace(descriptor, std::move(*connection));
  return found;
}

Connections since(const Connections& before, Connections all) {
  std::erase_if(all, [&](const auto& line) {
    const auto old = before.find(line.first);
    return old != before.end() && old->second.socket == line.second.socket;
  });
  return all;
}

void cut(const Connections& connections) {
  for (const auto& [descriptor, connection] : connections)
    if (is_open(descriptor, connection)) ::shutdown(descriptor, SHUT_RDWR);
}

PeerConnections::PeerConnections(Connections open, Milliseconds silence)
    : open_(std::move(open)), silence_(silence) {
  std::erase_if(open_, [](const auto& line) { return line.second.to_own_host; });
  for (const auto& line : open_) ask_every(line.first, silence / kAskings);
}

std::vector<std::string> PeerConnections::silent() const {
  std::set<std::string> found;
  for (const auto& [descriptor, connection] : open_)
    if (is_open(descriptor, connection) && is_silent(descriptor, silence_)) found.insert(connection.to);
  return {found.begin(), found.end()};
}

void PeerConnections::cut(const std::vector<std::string>& addresses) const {
  Connections silent = open_;
  std::erase_if(silent, [&](const auto& line) {
    return std::find(addresses.begin(), addresses.end(), line.second.to) == addresses.end();
  });
  comm::cut(silent);
}

std::chrono::milliseconds PeerConnections::period() const {
  return std::min(kLongestPause, silence_ / kAskings);
}

}  // namespace lockstep::comm
