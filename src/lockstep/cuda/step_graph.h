#pragma once
// A training step as a CUDA graph: forward, backward, NCCL's all-reduces and the optimiser in one launch.

#include <memory>

#include "lockstep/comm/cuda_plugin.h"

namespace lockstep::cuda {

std::unique_ptr<comm::StepGraph> make_step_graph(int device);

}  // namespace lockstep::cuda
