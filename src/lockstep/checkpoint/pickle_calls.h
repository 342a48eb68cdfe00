#pragma once
// What a pickle's calls mean: each name on the list stands for a small function here. Nothing else is called.

#include "lockstep/checkpoint/pickle_node.h"
#include "lockstep/checkpoint/unpickle.h"

namespace lockstep::checkpoint {

class PickleCalls {
 public:
  PickleCalls(const Cursor& input, NodeArena& nodes, const StorageLoader& load_storage)
      : input_(input), nodes_(nodes), load_storage_(load_storage) {}

  /// What the function that a global names would return.
  NodeId call(NodeId function, const std::vector<NodeId>& arguments);

  /// What a persistent id stands for.
  NodeId storage(NodeId id);

 private:
  NodeId make_list(const std::vector<NodeId>& arguments);
  NodeId make_dictionary(const std::vector<NodeId>& arguments);
  NodeId make_subclass(const std::vector<NodeId>& arguments);
  NodeId make_tensor(const std::vector<NodeId>& arguments, bool has_dtype);
  NodeId make_bytes(const std::vector<NodeId>& arguments);
  NodeId make_number(const std::vector<NodeId>& arguments);
  NodeId first_of(const std::vector<NodeId>& arguments) const;
  void want(bool holds) const { nodes_.want(holds); }

  const Cursor& input_;
  NodeArena& nodes_;
  const StorageLoader& load_storage_;
};

}  // namespace lockstep::checkpoint
