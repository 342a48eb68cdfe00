#pragma once
// What the checks of job scripts and configs share.

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>

#include "course/workshop/attempt.h"

namespace lockstep::workshop {

/// The whole number that the text is, or nothing.
std::optional<int> whole_number(const std::string& text);
/// 90 for "1:30"; a single number counts `unit` seconds. Nothing where it is no time.
std::optional<long> seconds_of(const std::string& time, long unit);
/// As Slurm reads it, for which "10" is ten minutes.
std::optional<long> slurm_seconds(const std::string& time);

/// CheckFailure where bash cannot read the script.
void require_bash(Attempt& attempt);
/// FOLDER/NAME, a program that notes each call in FOLDER and then does what `then` says.
void make_stand_in(const std::string& folder, const std::string& name, const std::string& then = {});
/// The calls of all of them, in order: "srun -n 2 lockstep whoami".
Words noted_calls(const std::string& folder);

/// What a launcher's options ask for, before the program; nothing where they leave it to the job.
struct Launch {
  std::optional<std::string> ranks, nodes, ranks_per_node;
  std::string inner;  // a launcher that the first one starts
  Words program;      // lockstep train ...: its words
};
/// "srun -n4 lockstep whoami": a launcher, its options, and lockstep.
Launch launch_of(const std::string& call);
/// CheckFailure where lockstep is started as other ranks than the job has.
void require_all_ranks(const Launch& launch, int ranks, int nodes);

/// All keys of the learner's config, as the program reads it; CheckFailure where that finds a mistake.
YAML::Node settings_of(Attempt& attempt);

}  // namespace lockstep::workshop
