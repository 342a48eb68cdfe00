#pragma once
// What no single key can say: words resolved, keys against each other, keys that nothing reads.

#include <vector>

#include "trainer/config/load.h"
#include "trainer/config/settings.h"

namespace lockstep::config {

/// Fills in what `default` stands for, where the rows that are chosen say it.
void resolve(Loaded& loaded);

/// Throws InputError where two keys cannot both be.
void check_together(const Loaded& loaded);

/// The same of the table of conflicts alone: for settings that were changed since.
void check_conflicts(const Loaded& loaded);

/// A warning for each key that was set and that the chosen optimiser, schedule, task or mode does not read.
void warn_unused(Loaded& loaded);

// The one table of choices that exclude each other; docs/reference/config.md has it, too.

/// A key that has one of some values.
struct Choice {
  const char* key;
  const char* value;  // in words: "above 1", "fp16"; empty: true, or anything at all
  bool (*is_made)(const Settings&);
};

struct Conflict {
  Choice one, other;
  const char* why;
  const char* hint;
};

const std::vector<Conflict>& conflicts();

}  // namespace lockstep::config
