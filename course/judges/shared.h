#pragma once
// What judges of job scripts and of configs share: what a scheduler reads of a script, what a script does
// when it runs, and a learner's config.

#include <yaml-cpp/yaml.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "course/workshop/judge.h"

namespace lockstep::workshop {

/// Options by name, the last of a name: "select" -> "2:ncpus=2" of #PBS -l, "nodes" -> "2" of #SBATCH. An
/// option without a value is there and empty.
using DirectiveOptions = std::map<std::string, std::string>;

/// NotYet where a directive stands below the first command, or is a comment by a slip.
DirectiveOptions asked_of_pbs(const std::string& script);
DirectiveOptions asked_of_slurm(const std::string& script);

/// What is asked for under this name, or nothing.
std::optional<std::string> value_of(const DirectiveOptions& asked, const std::string& name);

/// One kind of chunks of PBS's select=COUNT:ncpus=N:mpiprocs=N, with PBS's defaults.
struct Chunks {
  int count = 1, cores = 1, ranks = 1;
};
/// 2:ncpus=2+1:ncpus=4: two kinds. NotYet where a number is none.
std::vector<Chunks> chunks_of(const std::string& select);

/// In seconds; nothing where it is no time. "10" is ten seconds for PBS and ten minutes for Slurm.
std::optional<long> pbs_seconds(const std::string& time);
std::optional<long> slurm_seconds(const std::string& time);

/// The number that the text is, or nothing.
std::optional<int> whole_number(const std::string& text);

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

/// All keys of the learner's config, as the program reads it; NotYet where that finds a mistake.
YAML::Node settings_of(Attempt& attempt);

}  // namespace lockstep::workshop
