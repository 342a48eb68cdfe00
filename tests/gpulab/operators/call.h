#pragma once
// A call of an operator on the CPU that can be made again, by a stream that gets there later or by a graph.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <optional>
#include <vector>

#include "draw.h"

namespace lab {

using torch::jit::Stack;

struct Call {
  c10::OperatorHandle op;
  Stack arguments;                       // tensors are aliases of device memory
  std::optional<Draw> draw;              // for operators that draw random numbers
  int generator_at = -1;                 // the argument that takes a generator
  std::vector<at::Tensor> destinations;  // one a returned tensor; undefined: it was written in place

  /// The returns, with these arguments.
  Stack run(Stack stack) const;
  /// With its own arguments, and the returns go to their destinations.
  void run_into_place() const;
};

}  // namespace lab
