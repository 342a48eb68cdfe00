#pragma once
// The lines by which a job script asks the scheduler for what it needs.

#include <string>
#include <vector>

#include "tools/cluster/resources.h"

namespace lockstep::cluster {

/// Each without its `#PBS ` or `#SBATCH `. InputError for a name, queue, account, ... that is more than a
/// word.
std::vector<std::string> directives(const Site& site, const JobRequest& request, const Resources& given);

}  // namespace lockstep::cluster
