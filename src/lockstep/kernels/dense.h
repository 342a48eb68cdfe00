#pragma once
// Linear layers with ReLU between them, forward and backward over plain memory: no graph, no allocation once
// the batches have their size.

#include <cstdint>
#include <vector>

#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

/// A torch::nn::Linear: x times weight transposed, plus bias. Its memory belongs to somebody else.
struct DenseLayer {
  int64_t inputs = 0, outputs = 0;
  const float* weight = nullptr;  // [outputs, inputs]
  const float* bias = nullptr;
  float* weight_gradient = nullptr;
  float* bias_gradient = nullptr;
};

class DenseChain {
 public:
  DenseChain(std::vector<DenseLayer> layers, SimdLevel level);

  /// Where its memory is now; inputs and outputs stay.
  DenseLayer& layer(size_t i) { return layers_[i]; }

  /// What the last layer makes of x [rows, inputs]: [rows, outputs], kept until the next forward.
  const float* forward(const float* x, int64_t rows);
  /// As many numbers, for the gradient of what forward gave.
  float* output_gradient() { return gradient_.data(); }
  /// All gradients, from x as it was given to forward and from output_gradient().
  void backward(const float* x);

 private:
  std::vector<DenseLayer> layers_;
  SimdLevel level_;
  int64_t rows_ = 0;
  std::vector<std::vector<float>> turned_;   // weights transposed: [inputs, outputs]
  std::vector<std::vector<float>> outputs_;  // of each layer, behind its ReLU
  std::vector<float> gradient_, next_gradient_;
};

}  // namespace lockstep::kernels
