#pragma once
// What a job script does when it runs: programs that stand in for the real ones note how they are called.

#include <optional>
#include <string>
#include <vector>

namespace lockstep::workshop {

/// FOLDER/NAME, which notes each call in FOLDER and then does what `then` says.
void make_stand_in(const std::string& folder, const std::string& name, const std::string& then = {});
/// The calls of all of them, in order: "srun -n 2 lockstep whoami".
std::vector<std::string> noted_calls(const std::string& folder);
void forget_calls(const std::string& folder);

/// What a launcher's own options ask for, before the program; nothing where they leave it to the job.
struct Launch {
  std::optional<std::string> ranks, nodes, ranks_per_node;
  std::string inner;                 // a launcher that is started by the first one
  std::vector<std::string> program;  // lockstep train ...: its words
};

/// "srun -n4 lockstep whoami": a launcher, its options, and lockstep.
Launch launch_of(const std::string& call);

/// NotYet where lockstep is started as other ranks than the job has.
void require_all_ranks(const Launch& launch, int ranks, int nodes);

}  // namespace lockstep::workshop
