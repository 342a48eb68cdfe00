#pragma once
// Runs a graph through the dispatcher: autograd, autocast and hooks see it as they see a model written by
// hand.

#include <c10/core/Device.h>

#include <vector>

#include "lockstep/exported/graph.h"

namespace lockstep::exported {

/// How a graph runs.
struct GraphMode {
  at::Device device;    ///< in place of the one it was exported on
  at::DeviceType home;  ///< the kind of that one
  bool eval = false;    ///< with what eval mode changes
};

/// Outputs for inputs, one for each of the graph's.
std::vector<c10::IValue> run(const Graph& graph, std::vector<c10::IValue> inputs, const GraphMode& way);

}  // namespace lockstep::exported
