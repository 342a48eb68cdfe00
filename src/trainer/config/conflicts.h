#pragma once
// The one table of choices that exclude each other; docs/config.md has it, too.

#include <vector>

#include "trainer/config/settings.h"

namespace lockstep::config {

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
