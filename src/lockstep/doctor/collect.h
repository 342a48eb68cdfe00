#pragma once
// A rank's facts, gathered on its own node, asking nobody else.

#include <functional>
#include <memory>

#include "lockstep/doctor/facts.h"
#include "lockstep/doctor/settings.h"
#include "lockstep/launch/alarm.h"

namespace lockstep::doctor {

/// Fills its part of the facts. What it throws becomes an entry of facts.failed, and the others go on.
struct Collector {
  const char* name;
  void (*collect)(Facts& facts, const Settings& settings);
};

/// What bounds a collector's time while it lives.
using Stage = std::unique_ptr<launch::Alarm>;

/// Every collector of the table, in its order; the job is known of later. `begin` opens each one's stage.
Facts collect(const Settings& settings, const std::function<Stage(const char* name)>& begin);

// One part each, by file. To add one: declare it here, and add its row in collect.cpp.
void collect_environment(Facts& facts, const Settings& settings);

}  // namespace lockstep::doctor
