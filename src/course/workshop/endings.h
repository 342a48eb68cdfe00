#pragma once
// How the ranks of a learner's program ended, in a learner's words: who crashed, hung, or failed, and why.

#include <string>

#include "course/workshop/judge.h"

namespace lockstep::workshop {

/// A rank ended with an error of its own.
class LeftWithError : public NotYet {
 public:
  LeftWithError(int rank, std::string said, Fault error);
  /// The last that it printed.
  const std::string& said() const { return said_; }
  /// As lockstep says it; without words where it does not.
  const Fault& error() const { return error_; }

 private:
  std::string said_;
  Fault error_;
};

/// NotYet where a rank did not end well: the one that is the cause, not those that lost it. What the ranks
/// printed is in `folder`.
void require_good_end(const Run& run, const ProgramLimits& limits, const std::string& folder);

/// FOLDER/rank-0.log
std::string rank_log(const std::string& folder, int rank);

/// An error in a collective, as the rank that waited there would tell it; empty where it is another.
std::string plain_words(int rank, const Fault& error);

/// "the ranks are in two different calls: rank 0 in all-reduce, rank 1 in barrier"; empty where the error is
/// another, or all are in the same.
std::string different_calls(const Fault& error);

}  // namespace lockstep::workshop
