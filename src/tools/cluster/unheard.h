#pragma once
// Which of a user's own settings for the scheduler's commands our calls of them do not hear.

#include <string>
#include <vector>

namespace lockstep::cluster {

/// Of squeue, sacct, sinfo and their like: a format, a filter or an order would change what the answers mean.
/// As Program::without.
const std::vector<std::string>& unheard_by_queries();

/// Those of this process's environment that sbatch or qsub is not to hear with this script: what the script
/// says itself (--output, --account, ...), what a submission cannot be with, and what a job around us was
/// told.
std::vector<std::string> unheard_by_submission(const std::string& scheduler, const std::string& script);

}  // namespace lockstep::cluster
