#pragma once
// Errors in the user's words: what differs between the ranks, and which parameters had no gradient.

#include <exception>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/ddp_core.h"
#include "lockstep/parallel/module_tensors.h"

namespace lockstep::parallel {

/// Collective. Throws the same InputError on every rank where a rank's parameters (number, type, shape,
/// layout, which are frozen), options or graphs (OwnGraph) are not rank 0's.
void verify_alike(const ProcessGroup& group, const torch::nn::Module& module, const DdpOptions& options,
                  at::Device device);

/// Checks what a rank can see alone.
void verify_locally(const torch::nn::Module& module, const std::vector<ReducedParameter>& parameters,
                    const DdpOptions& options);

/// The Reducer's complaint with the parameters' names; anything it does not know is rethrown as it is.
[[noreturn]] void rethrow_in_words(const std::exception& error,
                                   const std::vector<ReducedParameter>& parameters, int rank);

}  // namespace lockstep::parallel
