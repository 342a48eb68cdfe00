#pragma once
// Random numbers: each call draws a seed of its own from the seed and the offset of CUDA's generator. So the
// generator advances, is saved and restored, and is captured in graphs as on a GPU; the numbers are others.
#include <ATen/core/Generator.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <cstdint>
#include <optional>

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

}  // namespace lab
