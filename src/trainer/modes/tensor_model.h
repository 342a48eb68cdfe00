#pragma once
// A model whose layers the ranks of a tensor group share: what it leaves is the whole model's.

#include <memory>
#include <vector>

#include "lockstep/models/layers.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/mesh.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/settings.h"
#include "trainer/modes/model.h"

namespace lockstep::train {

/// What the tensor group's ranks have split of the net, whose parameters these are. InputError where that is
/// nothing.
std::unique_ptr<ModelParts> make_tensor_parts(const Net& net, const std::vector<at::Tensor>& parameters,
                                              const Team& team);

// A model's layers, where the ranks of a mesh share each of them.

/// Whole ones where the mesh has no tensor ranks.
std::shared_ptr<const Layers> layers_for(const Mesh& mesh, const ParallelSettings& settings);

}  // namespace lockstep::train
