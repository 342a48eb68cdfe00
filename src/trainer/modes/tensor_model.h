#pragma once
// A model whose layers the ranks of a tensor group share: what it leaves is the whole model's.

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/models/layers.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/mesh.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/settings.h"
#include "trainer/modes/model.h"

namespace lockstep::train {

/// `model` is the net as it learns with the ranks that hold the same parameters. InputError where the net has
/// nothing that is split.
std::unique_ptr<TrainedModel> make_tensor_model(std::shared_ptr<Net> net, std::unique_ptr<TrainedModel> model,
                                                const Mesh& mesh);

// Which of a net's parameters the ranks of a tensor group have split, and how: put together and taken apart.

class SplitParameters {
 public:
  SplitParameters(const Net& net, Team team);

  bool empty() const { return dims_.empty(); }
  /// The dimension along which it is split, by its name or itself; none where each rank has it whole.
  std::optional<int64_t> dim_of(const std::string& name) const;
  std::optional<int64_t> dim_of(const at::Tensor& parameter) const;

  /// The ranks' parts together, on the CPU. Collective.
  at::Tensor whole(const at::Tensor& own, int64_t dim) const;
  /// This rank's part.
  at::Tensor own(const at::Tensor& whole, int64_t dim) const;
  /// The whole's shape, from a part's.
  std::vector<int64_t> whole_shape(const at::Tensor& own, int64_t dim) const;
  const Team& team() const { return team_; }

 private:
  Team team_;
  std::map<std::string, int64_t> dims_;
  std::map<const void*, int64_t> dims_of_;  // by the tensor's own address
};

/// A state dict of parts as one of wholes, and back. The first is collective.
Tree whole_state_dict(const SplitParameters& split, const Tree& own);
Tree own_state_dict(const SplitParameters& split, const Tree& whole);
/// Shapes and types that the whole state dict has, without its numbers.
Tree whole_outline(const SplitParameters& split, const Tree& own);

/// An optimiser's state dict over these parameters, in this order, and back. The first is collective.
Tree whole_optimizer_state(const SplitParameters& split, const std::vector<at::Tensor>& parameters,
                           const Tree& own);
Tree own_optimizer_state(const SplitParameters& split, const std::vector<at::Tensor>& parameters,
                         const Tree& whole);

// A model's layers, where the ranks of a mesh share each of them.

/// Whole ones where the mesh has no tensor ranks.
std::shared_ptr<const Layers> layers_for(const Mesh& mesh, const ParallelSettings& settings);

}  // namespace lockstep::train
