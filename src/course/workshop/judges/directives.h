#pragma once
// What a batch scheduler reads of a job script: the lines #PBS or #SBATCH above its first command.

#include <map>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace lockstep::workshop
