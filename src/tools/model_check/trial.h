#pragma once
// A forward and a backward of an exported model, on inputs made up for it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/exported.h"

namespace lockstep::model_check {

/// The dtype that an input's kind names; nothing where it is no tensor.
std::optional<at::ScalarType> dtype_of(const ExportedValue& value);

/// Inputs as the file describes them, a leaf each: random where numbers are real, else 0; a size that may
/// change is 2, or its least.
std::vector<c10::IValue> made_up_inputs(const ExportedFacts& facts);

/// Forward, and backward of the sum of the outputs' mean squares, from the random numbers of seed 0 and
/// without gradients before it. Returns the outputs.
std::vector<c10::IValue> try_model(ExportedNet& net, std::vector<c10::IValue> inputs);

/// Of the last backward: the parameters that are trained, and the names of those that it did not reach.
struct Reached {
  int64_t trained = 0;
  std::vector<std::string> without_gradient = {};
};
Reached reached(const ExportedNet& net);

}  // namespace lockstep::model_check
