#pragma once
// Handing a script to the scheduler: the command, and the job's id.

#include <chrono>
#include <string>
#include <vector>

#include "tools/cluster/scheduler.h"
#include "tools/cluster/site.h"

namespace lockstep::cluster {

struct SchedulerCommand {
  std::vector<std::string> words;
  std::vector<std::string> without = {};  // variables of ours that it does not hear
};

/// What submits the script that lies, or will lie, at `path`; to that cluster where one is named.
SchedulerCommand submit_command(const Site& site, const std::string& path, const std::string& script,
                                const std::string& cluster = "");

/// The same as a line for a shell.
std::string shown(const SchedulerCommand& command);

struct Submitted {
  std::string id;
  std::string cluster;  // where sbatch named one
  std::string said;     // by the scheduler, besides: words for people
};

/// Busy controllers answer late.
constexpr std::chrono::milliseconds kSubmitPatience = std::chrono::minutes(2);

/// Runs it, to its end whatever Ctrl-C does meanwhile. InputError where the command is not here, Error, in
/// the command's own words, where it refuses, does not answer in time or names no id.
Submitted submit(const SchedulerCommand& command, std::chrono::milliseconds patience = kSubmitPatience);

}  // namespace lockstep::cluster
