#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

// Random numbers: each call draws a seed of its own from the seed and the offset of CUDA's generator. So the
// generator advances, is saved and restored, and is captured in graphs as on a GPU; the numbers are others.

namespace lab {

class Draw {
 public:
  /// From this generator, or from the device's own.
  Draw(const std::optional<at::Generator>& generator, int device);

  /// A generator of the CPU for this call. In a graph it follows the offset that a replay starts from.
  at::Generator generator() const;
  uint64_t seed() const;

 private:
  at::PhiloxCudaState state_;
};

// A call of an operator on the CPU that can be made again, by a stream that gets there later or by a graph.

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
