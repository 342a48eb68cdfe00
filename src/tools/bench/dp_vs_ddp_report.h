#pragma once
// What `bench dp-vs-ddp` found, as tables and bars: on a terminal and on a page.

#include <map>
#include <string>
#include <vector>

#include "tools/bench/dp_vs_ddp.h"

namespace lockstep::bench {

inline const std::vector<std::string> kWays = {"dp", "dp, loss inside", "ddp"};
inline const std::vector<std::string> kWide = {"wide", "wide, loss inside"};

struct Results {
  std::map<std::string, std::vector<double>> milliseconds;  // a step, a run
  std::map<std::string, DpVsDdpFound> last;
};

std::string as_text(const Results& results);

/// `facts`: a line that says what was run.
void write_page(const std::string& path, const Results& results, const std::string& facts);

}  // namespace lockstep::bench
