#pragma once
// Checks an exercise again whenever its file is saved, until Ctrl-C.

#include <optional>

#include "course/workshop/check.h"

namespace lockstep::workshop {

/// One exercise, checked at once and then at every save; or, without one, whichever is saved.
void watch(Folder& folder, const std::optional<Master>& one);

}  // namespace lockstep::workshop
