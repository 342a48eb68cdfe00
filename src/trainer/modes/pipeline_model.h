#pragma once
// train.mode ddp with parallel.pipeline above 1: this rank trains one stage of the model, and a batch goes
// through the stages in micro-batches.

#include <memory>

#include "trainer/modes/model.h"

namespace lockstep::train {

/// Takes the whole model, as every rank has made it, and keeps this rank's stage. Collective; InputError, on
/// all ranks alike, where the model cannot be cut so.
std::unique_ptr<TrainedModel> make_pipeline_model(std::shared_ptr<Net> net, const Mesh& mesh,
                                                  const Settings& settings,
                                                  const std::shared_ptr<Tracer>& tracer = nullptr);

}  // namespace lockstep::train
