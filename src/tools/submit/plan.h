#pragma once
// The jobs that are to be submitted: one, the links of a chain, or an array for a sweep.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/submit/wanted_job.h"

namespace lockstep::submit {

struct Plan {
  cluster::Site site;
  cluster::JobRequest request;
  int64_t links = 1;
  std::filesystem::path stem;  // of the files that a job keeps: RUNS/.jobs/lockstep-20260504-140211-1234
};

/// `scheduler`: empty = the site's, or the one that is here. `sweeps`: KEY=VALUES each. Writes nothing.
/// InputError for what the site cannot give, and for a run of the sweep whose config is wrong.
Plan make_plan(const WantedJob& job, const std::string& scheduler, const std::vector<std::string>& sweeps,
               int64_t links);

/// Of one link: its file ("STEM.2.sh"), and the script, which waits for the job `before` where one is named.
std::filesystem::path file_of(const Plan& plan, int64_t link, const char* ending);
std::string script_of(const Plan& plan, int64_t link, const std::string& before);

/// The commands and the scripts, as a person reads them.
std::string shown(const Plan& plan);

}  // namespace lockstep::submit
