#include "lockstep/comm/meet/peer_user.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "lockstep/base/descriptor.h"

namespace lockstep::comm {
namespace {

constexpr unsigned char kListens = 10;  // the kernel's TCP_LISTEN

// Both ends of a connection, as the kernel's tables of sockets name them.
struct Ends {
  sockaddr_storage own{}, other{};
};

std::optional<Ends> ends_of(int socket) {
  Ends ends;
  socklen_t own = sizeof ends.own, other = sizeof ends.other;
  const bool known = ::getsockname(socket, reinterpret_cast<sockaddr*>(&ends.own), &own) == 0 &&
                     ::getpeername(socket, reinterpret_cast<sockaddr*>(&ends.other), &other) == 0;
  if (!known || ends.own.ss_family != ends.other.ss_family) return std::nullopt;
  return ends;
}

const sockaddr_in& v4(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in&>(address);
}
const sockaddr_in6& v6(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in6&>(address);
}

bool is_loopback_v4(const sockaddr_storage& address) {
  return ntohl(v4(address).sin_addr.s_addr) >> 24 == 127;
}

bool are_on_this_machine(const Ends& ends) {
  if (ends.own.ss_family == AF_INET) {
    return v4(ends.own).sin_addr.s_addr == v4(ends.other).sin_addr.s_addr ||
           (is_loopback_v4(ends.own) && is_loopback_v4(ends.other));
  }
  if (ends.own.ss_family != AF_INET6) return false;
  return std::memcmp(&v6(ends.own).sin6_addr, &v6(ends.other).sin6_addr, sizeof(in6_addr)) == 0;
}

void name_socket(const sockaddr_storage& address, __be16& port, __be32* place) {
  if (address.ss_family == AF_INET) {
    port = v4(address).sin_port;
    place[0] = v4(address).sin_addr.s_addr;
  } else {
    port = v6(address).sin6_port;
    std::memcpy(place, &v6(address).sin6_addr, sizeof(in6_addr));
  }
}

// The other end's own socket has the addresses the other way round.
struct Question {
  nlmsghdr head{};
  inet_diag_req_v2 body{};
};

Question question_about(const Ends& ends) {
  Question question;
  question.head.nlmsg_len = sizeof question;
  question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.body.sdiag_family = static_cast<__u8>(ends.own.ss_family);
  question.body.sdiag_protocol = IPPROTO_TCP;
  question.body.idiag_states = ~0U;
  auto& id = question.body.id;
  name_socket(ends.other, id.idiag_sport, id.idiag_src);
  name_socket(ends.own, id.idiag_dport, id.idiag_dst);
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return question;
}

}  // namespace

bool stays_on_this_machine(int socket) {
  const auto ends = ends_of(socket);
  return ends && are_on_this_machine(*ends);
}

std::optional<uid_t> user_at_other_end(int socket) {
  const auto ends = ends_of(socket);
  if (!ends || !are_on_this_machine(*ends)) return std::nullopt;
  const base::Descriptor kernel(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!kernel) return std::nullopt;
  const timeval soon{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(kernel.number(), SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
  const auto question = question_about(*ends);
  if (::send(kernel.number(), &question, sizeof question, 0) != static_cast<ssize_t>(sizeof question))
    return std::nullopt;
  alignas(nlmsghdr) std::array<char, 4096> answer;
  const auto size = ::recv(kernel.number(), answer.data(), answer.size(), 0);
  nlmsghdr head{};
  if (size < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof(inet_diag_msg))) return std::nullopt;
  std::memcpy(&head, answer.data(), sizeof head);
  if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  inet_diag_msg found{};
  std::memcpy(&found, answer.data() + NLMSG_HDRLEN, sizeof found);
  // a socket that no process holds, or one that only listens, says nothing of who is there
  if (found.idiag_inode == 0 || found.idiag_state == kListens) return std::nullopt;
  return found.idiag_uid;
}

}  // namespace lockstep::comm
