#pragma once
// How far the hosts' clocks are apart: what compares times of different nodes goes by them.

#include <string>
#include <vector>

#include "lockstep/base/clock_rounds.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

/// A rank's clock beside rank 0's, in seconds.
struct Skew {
  int rank = 0;
  std::string host;
  double ahead = 0;
  double error = 0;  // at most so far from the truth
};

/// One line a round of what a rank saw of the rounds, and back.
std::string pack(const std::vector<base::ClockRound>& rounds);
std::vector<base::ClockRound> unpack_rounds(const std::string& text);

Findings judge_clocks(const std::vector<Skew>& skews);

}  // namespace lockstep::doctor
