#pragma once
// A part of a forward whose activations are dropped, and computed again when backward asks for the first of
// them.

#include <memory>
#include <vector>

#include "lockstep/recompute/checkpoint_activations.h"
#include "lockstep/recompute/keeper.h"
#include "lockstep/recompute/replay_state.h"

namespace lockstep::recompute {

class Region : public Keeper, public std::enable_shared_from_this<Region> {
 public:
  Region(RecomputedPart part, const CheckpointOptions& options);

  /// The function has returned for the first time.
  void end_first_time();
  /// For the next tensor that is to be kept.
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
  /// The place of a tensor that is dropped.
  size_t drop(const at::Tensor& tensor);
  /// That tensor, computed again. From any of autograd's threads.
  at::Tensor take(size_t place);

 private:
  // An input as it was: without its graph, which is not ours to hold.
  struct Input {
    at::Tensor tensor;
    bool learns;
    int64_t version;
    bool changed_by_function = false;
  };
  struct Dropped {
    std::vector<int64_t> sizes;
    at::ScalarType type;
  };
  struct Made {
    at::Tensor tensor;
    int64_t version = 0;
  };
  class Remaking;

  std::vector<at::Tensor> inputs() const;
  void compute_again();
  void compute_until_enough(const std::vector<at::Tensor>& inputs);
  void check_like_before(size_t place) const;

  const RecomputedPart part_;  // without its inputs
  std::vector<Input> inputs_;
  GeneratorStates generators_;  // none where random numbers are not to be kept
  const AutocastState autocast_;
  std::vector<Dropped> dropped_;
  std::vector<Made> made_;
};

}  // namespace lockstep::recompute
