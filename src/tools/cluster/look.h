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

}  // namespace lockstep::cluster
