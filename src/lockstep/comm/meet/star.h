#pragma once
// A circle over sockets: every rank holds a line to rank 0.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/meet/listen.h"
#include "lockstep/launch/circle.h"
#include "lockstep/launch/identify.h"

namespace lockstep::comm {

/// Where rank 0 listens.
struct Spot {
  std::string host;
  std::uint16_t port = 0;
  std::string word = {};  // known to this start of this job alone; empty where it could not be told in secret
};

struct StarOptions {
  int rank = 0;
  int world = 1;
  std::string host = {};                      // this rank's, for messages
  std::chrono::milliseconds timeout{60'000};  // for all to come, and for each exchange after that
};

/// Rank 0's: returns once every other rank has come. Otherwise it throws, and so do those that came.
std::unique_ptr<launch::Circle> hold_star(const Listener& listener, const std::string& word,
                                          const StarOptions& options);

/// Asked before each try; nothing where rank 0 has not said yet.
using FindSpot = std::function<std::optional<Spot>()>;

/// The others': tries until the time is over. Throws InputError at once where a foreign service answers at a
/// spot that has no word; one that has may be left over from an earlier start, and is asked for again.
std::unique_ptr<launch::Circle> enter_star(const FindSpot& find, const StarOptions& options);

}  // namespace lockstep::comm
