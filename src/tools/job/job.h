#pragma once
// `lockstep job`: what a job script runs. It reads the allocation, starts the ranks, forwards signals to
// them, starts lost ranks again, and has the scheduler run the job again where its run stopped early.

#include <string>
#include <vector>

#include "tools/job/ranks.h"
#include "tools/job/scheduler.h"

namespace lockstep::job {

/// Runs `lockstep job WORDS`, and returns what the job exits with. `program`: the one that the ranks run.
int run_job(const std::vector<std::string>& words, Signals& signals, const std::string& program);

/// Words for a person: "a=1 b='x y'" as --set a=1 --set 'b=x y'; @FILE has a setting on each line.
std::vector<std::string> settings_in(const std::string& text);

/// Words as a shell splits them, with quotes; nothing else of a shell. InputError for a quote that is not
/// closed.
std::vector<std::string> split_words(const std::string& text);

/// Whether the ranks' errors (lines of JSON) name lost ranks or nodes and nothing else. `nodes_lost`: nodes
/// are known to be.
bool only_ranks_were_lost(const std::vector<std::string>& errors, bool nodes_lost);

}  // namespace lockstep::job
