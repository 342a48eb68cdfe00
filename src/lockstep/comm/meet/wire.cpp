#include "lockstep/comm/meet/wire.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/comm/meet/lookup.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

// "lockstep", the version of what is said here, the kind; then the length, little-endian; then the body
constexpr std::string_view kMagic = "lockstep3";
constexpr size_t kHead = kMagic.size() + 1 + sizeof(uint32_t);

std::string head_of(const WireMessage& message) {
  std::string head(kMagic);
  head += message.kind;
  const auto size = static_cast<uint32_t>(message.body.size());
  for (int shift = 0; shift < 32; shift += 8) head += static_cast<char>(size >> shift & 0xff);
  return head;
}

size_t size_in(const std::string& head) {
  uint32_t size = 0;
  for (size_t i = 0; i < sizeof size; ++i)
    size |= static_cast<uint32_t>(static_cast<unsigned char>(head[kMagic.size() + 1 + i])) << (8 * i);
  return size;
}

void set_up(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

int error_of(int socket) {
  int code = 0;
  socklen_t size = sizeof code;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size);
  return code;
}

// 0, or the reason
int connect_to(int socket, const addrinfo& place, Deadline deadline) {
  if (::connect(socket, place.ai_addr, place.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  return wait_ready(socket, POLLOUT, deadline) ? error_of(socket) : ETIMEDOUT;
}

}  // namespace

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 1'000'000));
}

bool wait_ready(int socket, short events, Deadline deadline) {
  pollfd entry{socket, events, 0};
  while (true) {
    const int ready = ::poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if ((ready == 0 || errno != EINTR) && Clock::now() >= deadline) return false;
  }
}

Wire::Wire(base::Descriptor socket) : socket_(std::move(socket)) {
  if (socket_) set_up(socket_.number());
}

bool Wire::send(const WireMessage& message, Deadline deadline) {
  const std::string bytes = head_of(message) + message.body;
  for (size_t at = 0; at < bytes.size();) {
    const auto sent = ::send(socket_.number(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent > 0) {
      at += static_cast<size_t>(sent);
    } else if (errno != EINTR && (errno != EAGAIN || !wait_ready(socket_.number(), POLLOUT, deadline))) {
      return false;
    }
  }
  return true;
}

bool Wire::read_some(size_t limit) {
  std::array<char, 65536> part;
  while (inbox_.size() < kHead + limit) {
    const auto got = ::recv(socket_.number(), part.data(), part.size(), 0);
    if (got == 0) return false;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    inbox_.append(part.data(), static_cast<size_t>(got));
  }
  return true;
}

std::optional<WireMessage> Wire::take(size_t limit) {
  const auto come = std::min(inbox_.size(), kMagic.size());
  if (inbox_.compare(0, come, kMagic.substr(0, come)) != 0) throw Foreign{inbox_};
  if (inbox_.size() < kHead) return std::nullopt;
  const size_t size = size_in(inbox_);
  const char kind = inbox_[kMagic.size()];
  if (size > limit || (kind != WireMessage::text && kind != WireMessage::error)) throw Foreign{inbox_};
  if (inbox_.size() < kHead + size) return std::nullopt;
  WireMessage message{static_cast<WireMessage::Kind>(kind), inbox_.substr(kHead, size)};
  inbox_.erase(0, kHead + size);
  return message;
}

std::optional<WireMessage> Wire::receive(size_t limit, Deadline deadline) {
  while (true) {
    if (auto message = take(limit)) return message;
    if (!wait_ready(socket_.number(), POLLIN, deadline)) return std::nullopt;
    const bool open = read_some(limit);
    if (auto message = take(limit)) return message;
    if (!open) throw Closed{};
  }
}

Wire call(const std::string& host, std::uint16_t port, Deadline deadline) {
  const auto found = look_up(host, port, std::chrono::milliseconds(milliseconds_until(deadline)));
  if (found.code != 0) throw Unanswered{::gai_strerror(found.code)};
  int reason = 0;
  for (const addrinfo* place = found.addresses.get(); place; place = place->ai_next) {
    base::Descriptor socket(::socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    reason = socket ? connect_to(socket.number(), *place, deadline) : errno;
    if (reason == 0) return Wire(std::move(socket));
  }
  throw Unanswered{std::strerror(reason)};
}

}  // namespace lockstep::comm
