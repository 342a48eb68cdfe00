#pragma once
// How quickly messages go between two ranks: over every line between nodes, or those between neighbours where
// there are many, and within each node.

#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

using Pair = std::pair<int, int>;  // of ranks, the lower one first

/// Whom to time, in one order for all: each rank goes through its own, and nobody waits in a circle.
/// Neighbours in it share no node, so that few lines are shared. `node_of`: by rank.
std::vector<Pair> pairs_to_time(const std::vector<int>& node_of);

struct PairTime {
  Pair pair;
  bool across = false;      // between two nodes
  double latency = 0;       // seconds, one way
  double bytes_second = 0;  // of larger messages
};

/// This rank's part; the lower rank of each pair has its time. All ranks call this together.
std::vector<PairTime> time_pairs(Messenger& messenger, const std::vector<Pair>& pairs);

std::string pack(const std::vector<PairTime>& times);
std::vector<PairTime> unpack_pairs(const std::string& text);

/// "the slowest line within a node is between rank 0 (n1) and rank 2 (n2), 12 us, 1.1 GB/s", and a warning
/// for those that are much slower than the rest, or than any network of a cluster. `hosts`: by rank.
Findings judge_pairs(const std::vector<PairTime>& times, const std::vector<std::string>& hosts);

/// "12.3 us", "4.5 ms"; "850 MB/s"
std::string time_text(double seconds);
std::string speed_text(double bytes_second);

}  // namespace lockstep::doctor
