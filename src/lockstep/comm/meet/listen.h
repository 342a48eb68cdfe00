#pragma once
// A listening socket bound to one address, never to all of them.

#include <cstdint>
#include <string>

namespace lockstep::comm {

struct Listener {
  int socket = -1;  // whoever takes it closes it
  std::uint16_t port = 0;
};

/// Port 0 lets the kernel choose a free one. Throws where the address or port cannot be had.
Listener listen_on(const std::string& address, std::uint16_t port = 0);

}  // namespace lockstep::comm
