#pragma once
// A tensor's bytes, to be compared with Python's.

#include <torch/types.h>

#include <string>

namespace lockstep::test {

inline std::string bits(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

}  // namespace lockstep::test
