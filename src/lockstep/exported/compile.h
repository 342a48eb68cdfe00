#pragma once
// From the JSON of a graph to one that runs.

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "lockstep/exported/archive.h"
#include "lockstep/exported/graph.h"

namespace lockstep::exported {

/// What a graph and those inside it call.
struct GraphCalls {
  std::map<std::string, int64_t> operators;  ///< "aten::linear", how often
  std::set<std::string> draws;               ///< of those, the ones that draw numbers in eval mode, too
  std::set<std::string> changed;             ///< values that are changed in place, by name
  int on = 0, off = 0;                       ///< training flags of dropout and norms
};

/// `counters`: the inputs that count a norm's batches. Refusal, which names the operator, for what cannot
/// run.
Graph compile(const Json& graph, const std::set<std::string>& counters, GraphCalls& calls);

/// The line of Python that a node of the file stands for, "model.py:12, in forward"; empty where it has none.
std::string place_of(const Json& node);

}  // namespace lockstep::exported
