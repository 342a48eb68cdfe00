#pragma once
// A convolution of 3 x 3, a pool of 2 x 2 and relu as one, forward and backward, by the plug-in
// liblockstep_fast.so.

#include <ATen/core/Tensor.h>

namespace lockstep {

/// pool_relu(conv2d(x, weight, bias)) with padding 1, where sums are in another order than libtorch's. Made
/// for floats on a CPU: images of one channel whose gradient nobody asks for, or channels in multiples of 16
/// in and 32 out; what else comes goes through libtorch's. Within an autocast to bf16 it multiplies numbers
/// of bf16 where the processor has instructions for that (for the gradients of multiples of 32 in),
/// and computes in floats otherwise. The output is channels last, and of floats. InputError where the plug-in
/// is not installed.
at::Tensor conv_pool_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace lockstep
