#pragma once
// The end of an exchange over sockets at every rank but 0.

#include <functional>
#include <memory>
#include <optional>

#include "lockstep/comm/meet/socket_exchange.h"
#include "lockstep/launch/process/text_exchange.h"

namespace lockstep::comm {

/// Called before each attempt; nothing where rank 0 has not published its address yet.
using FindMeetingPlace = std::function<std::optional<MeetingPlace>()>;

/// Connects to rank 0, over its Unix socket where there is one, and retries until the timeout. A foreign
/// service at an address that the user gave is an InputError at once. An address from a meeting file may be
/// left over from an earlier start, so there it reads the file again.
std::unique_ptr<launch::TextExchange> join_exchange(const FindMeetingPlace& find,
                                                    const ExchangeOptions& options);

}  // namespace lockstep::comm
