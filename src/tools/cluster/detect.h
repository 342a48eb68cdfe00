#pragma once
// A site file proposed from what a login node tells: queues, their nodes and limits. What could not be learnt
// is said in comments.

#include <string>
#include <vector>

#include "tools/cluster/site.h"

namespace lockstep::cluster {

/// What was learnt, and what a person has to know of it.
struct FoundSite {
  Site site;
  std::vector<std::string> notes;
};

/// From sinfo's lines.
FoundSite read_sinfo(const std::string& text);

/// From `qstat -Q -f`, `qstat -B -f` and `pbsnodes -a`; empty texts for what did not answer.
FoundSite read_pbs(const std::string& queues, const std::string& server, const std::string& nodes);

/// A site file's text: parse_site() reads it back to the same.
std::string as_yaml(const FoundSite& found);

/// Asks the machine that this runs on: each command for 10 s at most. `scheduler` is "slurm" or "pbs", or
/// empty for whichever answers first. Error where none does.
std::string detect_site(const std::string& scheduler);

}  // namespace lockstep::cluster
