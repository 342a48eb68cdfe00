#pragma once
// A convolution of 3 x 3, a pool of 2 x 2 and relu as one, forward and backward, by the plug-in
// liblockstep_fast.so.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// pool_relu(conv2d(x, weight, bias)) with padding 1; sums in another order than libtorch's. For floats on a
/// CPU, and images of one channel without a gradient, or multiples of 16 channels in and 32 out; libtorch
/// computes everything else. With autocast to bf16 it multiplies bf16 numbers if the processor has
/// instructions for that (gradients: multiples of 32 channels in), otherwise floats. The output has floats in
/// channels_last. InputError if the plug-in is not installed.
at::Tensor conv_pool_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace lockstep
