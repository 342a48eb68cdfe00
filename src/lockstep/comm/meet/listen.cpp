#include "lockstep/comm/meet/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::comm {
namespace {

[[noreturn]] void fail(const std::string& address, std::uint16_t port, const std::string& why) {
  throw Error(format("cannot listen on {} port {}: {}", address, port, why), "the job's store",
              port == 0 ? "is the address one of this machine's?"
                        : "choose another MASTER_PORT, or leave it to torchrun");
}

std::uint16_t bound_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

Listener listen_on(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) fail(address, port, ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  base::Descriptor file(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!file) fail(address, port, std::strerror(errno));
  const int yes = 1;
  ::setsockopt(file.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(file.number(), list->ai_addr, list->ai_addrlen) != 0 || ::listen(file.number(), SOMAXCONN) != 0)
    fail(address, port, std::strerror(errno));
  const auto chosen = bound_port(file.number());
  return {file.release(), chosen};
}

}  // namespace lockstep::comm
