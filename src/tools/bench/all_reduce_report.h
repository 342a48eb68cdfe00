#pragma once
// What `lockstep bench allreduce` found, in words, tables and plots.

#include <string>
#include <vector>

#include "lockstep/comm/algorithms/algorithm.h"
#include "tools/bench/all_reduce.h"
#include "tools/bench/curves.h"

namespace lockstep::bench {

struct AllReduceFound {
  struct Row {
    std::string name;
    const Algorithm* algorithm;   // null: somebody else's
    std::vector<double> seconds;  // one for each size
  };
  AllReduceBench asked;
  Ranks ranks;
  Network network = {};
  std::vector<Row> rows = {};
  std::vector<std::string> notes = {};
  std::string caution = {};  // what to know before the numbers are believed; empty = nothing
};

/// On standard output, and into the file that was asked for.
void tell(const AllReduceFound& found);

}  // namespace lockstep::bench
