#pragma once
// `train.mode: data_parallel`: one process, whose batch is dealt out to its devices.

#include <functional>
#include <memory>

#include "trainer/modes/model.h"

namespace lockstep::train {

/// The net moves to the first device; `another` makes one like it. InputError where there are fewer devices.
std::unique_ptr<TrainedModel> make_data_parallel_model(std::shared_ptr<Net> net, at::Device first,
                                                       const DataParallelSettings& settings,
                                                       const std::function<std::shared_ptr<Net>()>& another);

}  // namespace lockstep::train
