#pragma once
// The table of checks that make the ranks do something together. Every rank runs each of them, in the table's
// order, within its time; rank 0 tells what was found.

#include <chrono>
#include <span>

#include "lockstep/launch/process/runtime.h"
#include "tools/doctor/job/talk.h"
#include "tools/doctor/node/facts.h"
#include "tools/doctor/node/finding.h"
#include "tools/doctor/node/settings.h"

namespace lockstep::doctor {

/// What an earlier check found and a later one goes by.
struct Known {
  std::string no_gloo = {};             // why gloo cannot open, here or elsewhere
  std::string no_store = {};            // why the ranks could not meet to open any backend
  std::vector<std::string> paths = {};  // of folders that were looked at: nothing for others to read
};

/// What an active check works with. The ranks have met; talk's rounds hold even where one is stopped then.
struct Bench {
  launch::Runtime& runtime;
  const DoctorSettings& settings;
  const RankFacts& own;    // this rank's
  const Picture& picture;  // everybody's on rank 0; empty elsewhere
  Talk& talk;
  Known& known;

  /// Whether what this rank returns is told.
  bool speaks() const { return talk.rank() == 0 || talk.is_alone(); }
};

struct ActiveCheck {
  const char* name;
  std::chrono::milliseconds
      limit;  // past it the doctor says what it has, and that this check hung, and leaves
  Findings (*run)(
      const Bench& bench);  // what rank 0 returns is told; collective, so it throws on all or on none
};

std::span<const ActiveCheck> active_checks();

/// Who was not heard in a round, by its host and pid where those are known, as a failure.
Finding silence(const Bench& bench, const Heard& heard);

// One subject a file, in the order of the table.
Findings run_deadline(const Bench& bench);
Findings run_interfaces(const Bench& bench);
Findings run_reach(const Bench& bench);
Findings run_clocks(const Bench& bench);
Findings run_folders(const Bench& bench);
Findings run_shared(const Bench& bench);
Findings run_gloo(const Bench& bench);
Findings run_mpi(const Bench& bench);
Findings run_nccl(const Bench& bench);

}  // namespace lockstep::doctor
