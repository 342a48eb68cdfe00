#pragma once
// A model whose layers the ranks of a tensor group share: what it leaves is the whole model's.

#include <memory>

#include "trainer/modes/model.h"

namespace lockstep::train {

/// `model` is the net as it learns with the ranks that hold the same parameters. InputError where the net has
/// nothing that is split.
std::unique_ptr<TrainedModel> make_tensor_model(std::shared_ptr<Net> net, std::unique_ptr<TrainedModel> model,
                                                const Mesh& mesh);

}  // namespace lockstep::train
