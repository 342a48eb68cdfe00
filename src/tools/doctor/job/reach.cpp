#include "tools/doctor/job/reach.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr size_t kFewToCall = 16;
constexpr int kBacklog = 128;
constexpr size_t kNamedUnreached = 4;

std::shared_ptr<const addrinfo> numeric(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0)
    throw Error(format("'{}' is no address", address), "lockstep doctor");
  return {list, [](const addrinfo* all) { ::freeaddrinfo(const_cast<addrinfo*>(all)); }};
}

base::Descriptor socket_for(const addrinfo& address, int flags) {
  return base::Descriptor(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

int port_of(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0) return 0;
  return own.ss_family == AF_INET ? ntohs(reinterpret_cast<sockaddr_in&>(own).sin_port)
                                  : ntohs(reinterpret_cast<sockaddr_in6&>(own).sin6_port);
}

// A call under way.
struct Line {
  size_t door;
  base::Descriptor socket;
};

int error_of(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

void begin_call(const Door& door, size_t number, std::vector<Line>& lines,
                std::map<size_t, std::string>& failed) {
  const auto address = numeric(door.address, door.port);
  auto socket = socket_for(*address, SOCK_NONBLOCK);
  if (!socket ||
      (::connect(socket.number(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS)) {
    failed[number] = std::strerror(errno);
    return;
  }
  lines.push_back({number, std::move(socket)});
}

}  // namespace

std::pair<base::Descriptor, int> listen_at(const std::string& address) {
  const auto place = numeric(address, 0);
  auto socket = socket_for(*place, 0);
  if (!socket || ::bind(socket.number(), place->ai_addr, place->ai_addrlen) != 0 ||
      ::listen(socket.number(), kBacklog) != 0) {
    throw Error(format("cannot listen at {}: {}", address, std::strerror(errno)), "lockstep doctor");
  }
  const int port = port_of(socket.number());
  return {std::move(socket), port};
}

std::map<size_t, std::string> call(const std::vector<Door>& doors, Milliseconds patience) {
  std::map<size_t, std::string> failed;
  std::vector<Line> lines;
  for (size_t i = 0; i < doors.size(); ++i) begin_call(doors[i], i, lines, failed);
  for (const auto end = Clock::now() + patience; !lines.empty() && Clock::now() < end;) {
    std::vector<pollfd> sockets;
    for (const auto& line : lines) sockets.push_back({line.socket.number(), POLLOUT, 0});
    ::poll(sockets.data(), sockets.size(), 50);
    std::vector<Line> waiting;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!sockets[i].revents) {
        waiting.push_back(std::move(lines[i]));
      } else if (const int error = error_of(lines[i].socket.number())) {
        failed[lines[i].door] = std::strerror(error);
      }
    }
    lines = std::move(waiting);
  }
  for (const auto& line : lines) failed[line.door] = format("no answer in {} s", patience.count() / 1000.0);
  return failed;
}

std::vector<size_t> calls_of(size_t node, size_t count) {
  std::set<size_t> called;
  if (count <= kFewToCall) {
    for (size_t other = 0; other < count; ++other) called.insert(other);
  } else {
    called = {0, (node + 1) % count, (node + count - 1) % count};
  }
  called.erase(node);
  return {called.begin(), called.end()};
}

Findings judge_reach(const std::vector<Unreached>& unreached, size_t calls) {
  if (unreached.empty()) return {fine(format("the nodes reach each other: {} connections tried", calls))};
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(unreached.size(), kNamedUnreached); ++i) {
    const auto& one = unreached[i];
    texts.push_back(format("{} does not reach {} at {} port {}: {}", one.from, one.door.host,
                           one.door.address, one.door.port, one.why));
  }
  if (unreached.size() > kNamedUnreached)
    texts.push_back(format("and {} more", unreached.size() - kNamedUnreached));
  return {
      fail(base::join(texts, "; "),
           "set GLOO_SOCKET_IFNAME to an interface in a network that the nodes share; where it is the right "
           "one, a firewall between the nodes must let all ports of ip_local_port_range through")};
}

}  // namespace lockstep::doctor
