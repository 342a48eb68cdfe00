#pragma once
// Rank 0's end of an exchange over sockets.

#include <memory>
#include <string>

#include "lockstep/comm/meet/listen.h"
#include "lockstep/comm/meet/socket_exchange.h"
#include "lockstep/launch/process/text_exchange.h"

namespace lockstep::comm {

/// Returns once every other rank has come and said `word`. Otherwise it throws, and so do those that came.
std::unique_ptr<launch::TextExchange> serve_exchange(const Listener& listener, const std::string& word,
                                                     const ExchangeOptions& options);

}  // namespace lockstep::comm
