#pragma once
// Rank 0's end of an exchange over sockets.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/meet/socket_exchange.h"
#include "lockstep/launch/process/text_exchange.h"

namespace lockstep::comm {

/// Accepts connections from these listening sockets and returns once every other rank has come with `word`.
/// Otherwise it throws, and so do the ranks that came. Connections over TCP from this machine are closed:
/// ranks on it use the Unix socket, which other users cannot reach.
std::unique_ptr<launch::TextExchange> serve_exchange(const std::vector<int>& listeners,
                                                     const std::string& word, const ExchangeOptions& options);

}  // namespace lockstep::comm
