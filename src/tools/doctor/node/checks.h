#pragma once
// The table of checks that look at all ranks' facts: pure functions, so that a test can make up a cluster.

#include <span>

#include "tools/doctor/node/facts.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

struct Check {
  const char* name;
  Findings (*judge)(const Picture& picture);  // at least one finding; none = nothing to say here
};

/// In the order in which they are told.
std::span<const Check> checks();

/// One check's findings, each with its name; a check that throws has failed.
Findings judge(const Check& check, const Picture& picture);

// One subject a file. To add one: declare it here, and add its row in checks.cpp.
Findings judge_launcher(const Picture& picture);
Findings judge_ranks(const Picture& picture);
Findings judge_versions(const Picture& picture);
Findings judge_facts(const Picture& picture);
Findings judge_host(const Picture& picture);
Findings judge_cores(const Picture& picture);
Findings judge_threads(const Picture& picture);
Findings judge_locality(const Picture& picture);
Findings judge_gpus(const Picture& picture);
Findings judge_libtorch(const Picture& picture);
Findings judge_memory(const Picture& picture);
Findings judge_shm(const Picture& picture);
Findings judge_limits(const Picture& picture);
Findings judge_container(const Picture& picture);
Findings judge_signals(const Picture& picture);
Findings judge_variables(const Picture& picture);

}  // namespace lockstep::doctor
