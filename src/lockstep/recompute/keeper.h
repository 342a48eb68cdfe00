#pragma once
// Who decides what becomes of the tensors that autograd keeps for backward: libtorch's saved-tensor hooks,
// which it offers to Python alone, for C++.

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <vector>

namespace lockstep::recompute {

/// Asked for each tensor that is kept, in the thread that has it in force.
class Keeper {
 public:
  virtual ~Keeper() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
  /// This thread is about to run a backward from there.
  virtual void before_backward(const std::vector<torch::autograd::Edge>& /*roots*/) {}
};

/// In force in this thread while it lives.
class KeeperScope {
 public:
  explicit KeeperScope(Keeper& keeper);
  ~KeeperScope();
  KeeperScope(const KeeperScope&) = delete;
  KeeperScope& operator=(const KeeperScope&) = delete;

 private:
  Keeper* before_;
};

/// Is one in force in this thread?
bool has_keeper();

}  // namespace lockstep::recompute
