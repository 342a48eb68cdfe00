#pragma once
// The end of an exchange over sockets at every rank but 0: it calls rank 0.

#include <functional>
#include <memory>
#include <optional>

#include "lockstep/comm/meet/socket_exchange.h"
#include "lockstep/launch/process/text_exchange.h"

namespace lockstep::comm {

/// Asked before each try; nothing where rank 0 has not said yet.
using FindMeetingPlace = std::function<std::optional<MeetingPlace>()>;

/// Tries until the time is over. Throws InputError at once where a foreign service answers at a place that
/// has no word; one that has may be left over from an earlier start, and is asked for again.
std::unique_ptr<launch::TextExchange> join_exchange(const FindMeetingPlace& find,
                                                    const ExchangeOptions& options);

}  // namespace lockstep::comm
