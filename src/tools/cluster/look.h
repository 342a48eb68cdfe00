#pragma once
// What the scheduler says of jobs. Each of its commands is started from an argument list and has its time.

#include <map>
#include <string>
#include <vector>

#include "tools/cluster/scheduler.h"

namespace lockstep::cluster {

struct Seen {
  enum State {
    queued,
    running,
    gone,    ///< it is over, by the scheduler's word
    unknown  ///< the scheduler has not heard of it: yet, or any more
  };
  State state = queued;
  std::string words;  // the scheduler's own: "PENDING (Resources)"
};

struct Look {
  std::map<std::string, Seen> seen;  // without those that the scheduler did not speak of this time
  std::string trouble = {};          // why it did not, in its own words
};

/// Asks what a set of jobs does; of those that squeue does not know, sacct where there is one.
Look look_at(const Scheduler& scheduler, const std::vector<std::string>& jobs);

// What their answers mean.
std::map<std::string, Seen> read_squeue(const std::string& answer, const std::vector<std::string>& jobs);
std::map<std::string, Seen> read_sacct(const std::string& answer);
Seen read_qstat(const std::string& answer);

// Which of a user's own settings for the scheduler's commands our calls of them do not hear.

/// Of squeue, sacct, sinfo and their like: a format, a filter or an order would change what the answers mean.
/// As Program::without.
const std::vector<std::string>& unheard_by_queries();

/// Those of this process's environment that sbatch or qsub is not to hear with this script: what the script
/// says itself (--output, --account, ...), what a submission cannot be with, and what a job around us was
/// told.
std::vector<std::string> unheard_by_submission(const std::string& scheduler, const std::string& script);

}  // namespace lockstep::cluster
