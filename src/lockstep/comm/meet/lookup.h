#pragma once
// The addresses of a host's name, from a name service that may never answer, and sockets that listen at one
// or connect to one.

#include <netdb.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::comm {

struct Lookup {
  int code = 0;  // getaddrinfo's; EAI_AGAIN where the answer did not come in time
  std::shared_ptr<const addrinfo> addresses = nullptr;
};

/// Waits no longer than that for names; a number is its own address.
Lookup look_up(const std::string& host, std::uint16_t port, std::chrono::milliseconds patience);

struct Listener {
  base::Descriptor socket;
  std::uint16_t port = 0;
};
/// Bound to one address, never to all of them. Port 0 lets the kernel choose a free one. Throws where the
/// address or port cannot be had.
Listener listen_on(const std::string& address, std::uint16_t port = 0);

/// Tries to connect to any address of that name. Nothing at the deadline; then `why` is the last reason.
base::Descriptor connect_to(const std::string& host, std::uint16_t port,
                            std::chrono::steady_clock::time_point deadline, std::string& why);

}  // namespace lockstep::comm
