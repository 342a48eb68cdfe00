#pragma once
// What `lockstep bench allreduce` found, in words, tables and charts.

#include <string>
#include <vector>

#include "lockstep/comm/algorithms/algorithm.h"
#include "tools/bench/all_reduce.h"
#include "tools/report/page.h"

namespace lockstep::bench {

struct AllReduceFound {
  struct Row {
    std::string name;
    const Algorithm* algorithm;   // null: not one of lockstep's
    std::vector<double> seconds;  // one for each size
  };
  AllReduceBench asked;
  Ranks ranks;
  Network network = {};
  std::vector<Row> rows = {};
  std::vector<std::string> notes = {};
  std::string caution = {};  // why the numbers may mislead; empty = nothing
};

struct TimeCurve {
  std::string name;
  std::vector<double> seconds;  // one for each size
  bool is_model = false;
  int look = -1;  // the same for a row and its model
};

/// Which of the curves is the fastest, by size: "all_to_all up to 4 KiB, then ring".
std::string crossovers(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves);
/// A row for each curve, a column for each size, as multiples of the fastest.
report::Table ratio_table(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves);
/// So few that their lines can be told apart: the fastest for the most bytes, in the curves' order.
constexpr size_t kFewCurves = 5;
std::vector<TimeCurve> fastest_few(const std::vector<TimeCurve>& curves);
/// Bus bandwidth: what a line would have to carry if each rank sent 2 (P-1)/P of the bytes, the least there
/// is.
report::Chart bandwidth_chart(const std::vector<int64_t>& sizes, const std::vector<TimeCurve>& curves,
                              int world);

report::Page page_of(const AllReduceFound& found);

}  // namespace lockstep::bench
