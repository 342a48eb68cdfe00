#pragma once
// The end of a star at every rank but 0: it calls rank 0.

#include <functional>
#include <memory>
#include <optional>

#include "lockstep/comm/meet/star.h"
#include "lockstep/launch/process/circle.h"

namespace lockstep::comm {

/// Asked before each try; nothing where rank 0 has not said yet.
using FindSpot = std::function<std::optional<Spot>()>;

/// Tries until the time is over. Throws InputError at once where a foreign service answers at a spot that has
/// no word; one that has may be left over from an earlier start, and is asked for again.
std::unique_ptr<launch::Circle> enter_star(const FindSpot& find, const StarOptions& options);

}  // namespace lockstep::comm
