#pragma once
// A fused 3 x 3 convolution, 2 x 2 max pool and relu, forward and backward, from the plug-in
// liblockstep_fast.so.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Computes pool_relu(conv2d(x, weight, bias)) with padding 1, and sums in a different order than libtorch.
/// Supports floats on a CPU, for images of one channel without a gradient, or multiples of 16 channels in and
/// 32 out; calls libtorch for everything else. With autocast to bf16 it multiplies bf16 numbers if the
/// processor has instructions for that (gradients: multiples of 32 channels in), otherwise floats. The output
/// has floats in channels_last. Throws InputError if the plug-in is not installed.
at::Tensor conv_pool_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace lockstep
