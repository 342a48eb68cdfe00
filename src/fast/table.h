#pragma once
// What the plug-in's table offers, and at which SIMD level.

#include "lockstep/kernels/fast_kernels.h"
#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

at::Tensor conv_pool_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

std::unique_ptr<DenseChain> make_dense_chain(std::vector<DenseLayer> layers, SimdLevel level);

double cross_entropy(const CrossEntropy& kind, const float* outputs, const int64_t* targets, int64_t rows,
                     int64_t classes, double share, float* gradient);

double mean_squared_error(const float* outputs, const float* targets, int64_t count, double share,
                          float* gradient);

}  // namespace lockstep::kernels
