#pragma once
// Small tensors and texts between the ranks of a group.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// A text as a tensor of bytes on the CPU, and back.
at::Tensor bytes_of(const std::string& text);
std::string text_of(const at::Tensor& bytes);

/// Every rank's tensor, in rank order, on the tensor's device. All have one shape.
std::vector<at::Tensor> all_gather(const ProcessGroup& group, const at::Tensor& tensor);
/// The same for CPU tensors, sent over `device`.
std::vector<at::Tensor> all_gather(const ProcessGroup& group, const at::Tensor& tensor, at::Device device);
/// Every rank's text, in rank order.
std::vector<std::string> all_gather(const ProcessGroup& group, const std::string& text, at::Device device);
/// Rank 0's text on every rank.
std::string broadcast(const ProcessGroup& group, const std::string& text, at::Device device);

}  // namespace lockstep::comm
