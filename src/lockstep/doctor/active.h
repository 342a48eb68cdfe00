#pragma once
// The table of checks that make the ranks do something together. Every rank runs each of them, in the table's
// order, within its time; rank 0 tells what was found.

#include <chrono>
#include <span>

#include "lockstep/doctor/facts.h"
#include "lockstep/doctor/finding.h"
#include "lockstep/doctor/settings.h"
#include "lockstep/launch/runtime.h"

namespace lockstep::doctor {

/// What an active check works with. The ranks have met: runtime's exchanges hold.
struct Bench {
  launch::Runtime& runtime;
  const Settings& settings;
  const Facts& own;        // this rank's
  const Picture& picture;  // everybody's on rank 0; empty elsewhere
};

struct ActiveCheck {
  const char* name;
  std::chrono::milliseconds
      limit;  // past it the doctor says what it has, and that this check hung, and leaves
  Findings (*run)(
      const Bench& bench);  // what rank 0 returns is told; collective, so it throws on all or on none
};

std::span<const ActiveCheck> active_checks();

Findings run_deadline(const Bench& bench);

}  // namespace lockstep::doctor
