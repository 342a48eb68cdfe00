#pragma once
// The addresses of a host's name, from a name service that may never answer.

#include <netdb.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::comm {

struct Lookup {
  int code = 0;  // getaddrinfo's; EAI_AGAIN where the answer did not come in time
  std::shared_ptr<const addrinfo> addresses = nullptr;
};

/// Waits no longer than that for names; a number is its own address.
Lookup look_up(const std::string& host, std::uint16_t port, std::chrono::milliseconds patience);

}  // namespace lockstep::comm
