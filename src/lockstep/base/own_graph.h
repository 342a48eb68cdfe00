#pragma once
// A module with a computation graph that comes from a file.

#include <string>

namespace lockstep {

/// A module that runs graphs from a file. Ranks with equal parameters may have different graphs, so DDP
/// compares their digests.
class OwnGraph {
 public:
  virtual ~OwnGraph() = default;
  /// A digest of the graphs.
  virtual std::string graph_digest() const = 0;
};

}  // namespace lockstep
