#pragma once
// A rank's facts, gathered on its own node, asking nobody else.

#include <functional>
#include <memory>

#include "lockstep/launch/process/alarm.h"
#include "tools/doctor/node/facts.h"
#include "tools/doctor/node/settings.h"

namespace lockstep::doctor {

/// Fills its part of the facts. What it throws becomes an entry of facts.failed, and the others go on.
struct Collector {
  const char* name;
  void (*collect)(RankFacts& facts, const DoctorSettings& settings);
};

/// What bounds a collector's time while it lives.
using Stage = std::unique_ptr<launch::Alarm>;

/// Every collector of the table, in its order; the job is known of later. `begin` opens each one's stage.
RankFacts collect(const DoctorSettings& settings, const std::function<Stage(const char* name)>& begin);

/// Which of its GPUs this rank takes: once its place is known.
void choose_gpu(RankFacts& facts);

// One part each, by file. To add one: declare it here, and add its row in collect.cpp.
void collect_environment(RankFacts& facts, const DoctorSettings& settings);
void collect_cores(RankFacts& facts, const DoctorSettings& settings);
void collect_memory(RankFacts& facts, const DoctorSettings& settings);
void collect_limits(RankFacts& facts, const DoctorSettings& settings);
void collect_walls(RankFacts& facts, const DoctorSettings& settings);
void collect_host(RankFacts& facts, const DoctorSettings& settings);
void collect_gpus(RankFacts& facts, const DoctorSettings& settings);
void collect_libtorch(RankFacts& facts, const DoctorSettings& settings);

}  // namespace lockstep::doctor
