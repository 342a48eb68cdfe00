#pragma once
// What no single key can say: words resolved, keys against each other, keys that nothing reads.

#include "trainer/config/loaded.h"

namespace lockstep::config {

/// Fills in what `default` stands for, where the rows that are chosen say it.
void resolve(Loaded& loaded);

/// Throws InputError where two keys cannot both be.
void check_together(const Loaded& loaded);

/// The same of the table of conflicts alone: for settings that were changed since.
void check_conflicts(const Loaded& loaded);

/// A warning for each key that was set and that the chosen optimiser, schedule, task or mode does not read.
void warn_unused(Loaded& loaded);

}  // namespace lockstep::config
