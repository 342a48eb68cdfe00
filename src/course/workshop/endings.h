#pragma once
// How the ranks of a learner's program ended, in a learner's words: who crashed, hung, or failed, and why.

#include <string>

#include "course/workshop/judge.h"

namespace lockstep::workshop {

/// NotYet where a rank did not end well: the one that is the cause, not those that lost it. What the ranks
/// printed is in `folder`.
void require_good_end(const Run& run, const ProgramLimits& limits, const std::string& folder);

/// FOLDER/rank-0.log
std::string rank_log(const std::string& folder, int rank);

/// What lockstep said of a collective that did not come to its end, as the rank that waited would tell it;
/// empty where the text is none of these.
std::string plain_words(int rank, const std::string& printed);

/// "the ranks are in two different calls: rank 0 in all-reduce, rank 1 in barrier", where lockstep said
/// who is where, as all came or as their calls differ; empty where it did not, or all are in the same.
std::string different_calls(const std::string& printed);

}  // namespace lockstep::workshop
