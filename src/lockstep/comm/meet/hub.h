#pragma once
// Rank 0's end of a star.

#include <memory>
#include <string>

#include "lockstep/comm/meet/listen.h"
#include "lockstep/comm/meet/star.h"
#include "lockstep/launch/process/circle.h"

namespace lockstep::comm {

/// Returns once every other rank has come and said `word`. Otherwise it throws, and so do those that came.
std::unique_ptr<launch::Circle> hold_star(const Listener& listener, const std::string& word,
                                          const StarOptions& options);

}  // namespace lockstep::comm
