#pragma once
// An exercise is proven: as the learner finds it, solved, and with each typical wrong answer it is told what
// its master says.

#include <string>

#include "course/workshop/master.h"

namespace lockstep::workshop {

/// Tries the answers that the master knows, of the wrong ones the first `wrong`, in `folder`, and prints what
/// each is told. False where one is told anything else.
bool prove(const Master& exercise, const std::string& folder, size_t wrong);

}  // namespace lockstep::workshop
