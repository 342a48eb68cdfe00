#pragma once
// A model's layers, where the ranks of a mesh share each of them.

#include <memory>

#include "lockstep/models/layers.h"
#include "lockstep/parallel/mesh.h"
#include "trainer/config/settings.h"

namespace lockstep::train {

/// Whole ones where the mesh has no tensor ranks.
std::shared_ptr<const Layers> layers_for(const Mesh& mesh, const ParallelSettings& settings);

}  // namespace lockstep::train
