#pragma once
// Which rank of a job reports an error that several meet, also where no rank could join.

#include <chrono>
#include <string>

#include "lockstep/base/descriptor.h"
#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// A rank's number and how many there are.
struct RankOf {
  int rank = 0;
  int world = 1;
  bool one_host = false;  // all ranks are known to be on this one
};

/// By whatever launcher's variables make sense, and never an error: the environment may be what is wrong.
/// Where several make sense, a rank above 0 is believed before a 0 that was exported for all.
RankOf rank_by_environment(const Environment& environment);

/// The right to speak for the ranks that one launcher started on this host and that are read in one place:
/// the first to ask has it, until it is gone. Without a launcher's word, or with log files apart, each has
/// its own.
class ErrorReporter {
 public:
  explicit ErrorReporter(const Environment& environment);
  bool is_ours() const { return ours_; }
  /// Whether others may look for it.
  bool is_shared() const { return !name_.empty(); }
  /// Whether somebody else had it and has gone since; waits for that no longer than asked.
  bool has_reported(std::chrono::milliseconds patience) const;

 private:
  std::string name_;  // of a socket without a file, which ends with its process; empty = nobody to agree with
  base::Descriptor claim_;
  bool ours_ = true;
};

}  // namespace lockstep::launch
