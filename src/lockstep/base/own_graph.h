#pragma once
// A module that computes what neither its class nor its parameters show.

#include <string>

namespace lockstep {

/// A module that runs graphs from a file: ranks whose parameters are alike may still hold other ones. DDP
/// compares them between the ranks.
class OwnGraph {
 public:
  virtual ~OwnGraph() = default;
  /// A digest of the graphs: the same for the same ones.
  virtual std::string graph_digest() const = 0;
};

}  // namespace lockstep
