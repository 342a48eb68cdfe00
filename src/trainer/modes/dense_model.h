#pragma once
// train.kernels: fast for linear layers with ReLU between them: no graph, no Reducer, one sum of all
// gradients.

#include <memory>

#include "trainer/modes/model.h"

namespace lockstep::train {

/// nullptr where the model, or what the settings ask for, needs the general way; of a model of dense layers
/// the log then says why. Collective.
std::unique_ptr<TrainedModel> make_dense_model(const std::shared_ptr<Net>& net, const Mesh& mesh,
                                               const Settings& settings, const ModelSupplies& supplies);

/// Is it one that make_dense_model() made?
bool computes_without_graph(const TrainedModel& model);

}  // namespace lockstep::train
