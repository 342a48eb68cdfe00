#pragma once
// CPU kernels that are faster than libtorch's and add in another order: a plug-in, liblockstep_fast.so,
// loaded on first use.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::kernels {

/// A torch::nn::Linear over the caller's memory: x times weight transposed, plus bias.
struct DenseLayer {
  int64_t inputs = 0, outputs = 0;
  const float* weight = nullptr;  // [outputs, inputs]
  const float* bias = nullptr;    // nullptr: none
  float* weight_gradient = nullptr;
  float* bias_gradient = nullptr;
};

/// Linear layers with ReLU between them, forward and backward over plain memory: no graph, and no allocation
/// once the batches have their size.
class DenseChain {
 public:
  virtual ~DenseChain() = default;
  /// To set its memory; inputs and outputs stay the same.
  virtual DenseLayer& layer(size_t i) = 0;
  /// The last layer's outputs [rows, outputs] for x [rows, inputs], kept until the next forward.
  virtual const float* forward(const float* x, int64_t rows) = 0;
  /// Memory of the same size, for the gradient of the outputs.
  virtual float* output_gradient() = 0;
  /// Computes all gradients from the forward's x and from output_gradient().
  virtual void backward(const float* x) = 0;
};

/// The options of at::cross_entropy_loss; targets of -100 are ignored.
struct CrossEntropy {
  std::vector<float> class_weights = {};  // empty: 1 each
  double label_smoothing = 0;
};

/// What the plug-in offers; it exports one of these under kFastTableSymbol.
struct FastKernels {
  int version = 0;
  /// As lockstep::conv_pool_relu().
  at::Tensor (*conv_pool_relu)(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias) = nullptr;
  /// For layers whose `inputs` and `outputs` are set.
  std::unique_ptr<DenseChain> (*make_dense_chain)(std::vector<DenseLayer> layers) = nullptr;
  /// The mean over the rows of outputs [rows, classes]; `gradient`, of the same shape, is that of the mean
  /// times `share`. InputError where a target is no class.
  double (*cross_entropy)(const CrossEntropy& kind, const float* outputs, const int64_t* targets,
                          int64_t rows, int64_t classes, double share, float* gradient) = nullptr;
  /// The same of (output - target) squared, over `count` of them.
  double (*mean_squared_error)(const float* outputs, const float* targets, int64_t count, double share,
                               float* gradient) = nullptr;
};

constexpr int kFastTableVersion = 1;
constexpr const char* kFastTableSymbol = "lockstep_fast_table";

/// The plug-in, loaded now unless it already is. InputError where it is not installed.
const FastKernels& fast_kernels();

}  // namespace lockstep::kernels
