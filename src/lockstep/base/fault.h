#pragma once
// An error as data, what an Error carries.

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

/// A rank and the collective that it was in when another one failed.
struct RankCall {
  int rank = 0;            ///< of the job
  std::string call = {};   ///< "all-reduce"; empty: not known
  uint64_t number = 0;     ///< of its collectives, from 1; 0: not known
  std::string state = {};  ///< of a rank at fault: "has died (its process is gone), at collective 3"
};

/// The collective in which this rank met an error.
struct FailedCall {
  std::string call = {};  ///< "all-reduce"; empty: the error was met outside of any
  uint64_t number = 0;    ///< of the group's collectives, from 1; 0: not counted, as a message
  double waited = 0;      ///< seconds, where it timed out
};

/// An error as data.
struct Fault {
  Code code = Code::failed;
  std::vector<int> ranks = {};  ///< at fault, as far as they are known
  std::string what = {}, where = {}, hint = {};
  FailedCall met_in = {};
  std::vector<RankCall> seen = {};  ///< where ranks were then; a few of many
};

/// Any exception as data: of one that is no Error, what describe() says of it.
Fault fault_of(const std::exception& error);

}  // namespace lockstep
