#include "place.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <set>

#include "lab.h"
#include "tensors.h"

namespace lab {
namespace {

using torch::jit::Stack;

bool takes_indices(const std::string& name) {
  static const std::set<std::string> those = {"aten::index",         "aten::index_put",
                                              "aten::index_put_",    "aten::_index_put_impl_",
                                              "aten::_unsafe_index", "aten::_unsafe_index_put"};
  return those.count(name) > 0;
}

bool reads_lengths(const std::string& name) {
  static const std::set<std::string> those = {"aten::_ctc_loss", "aten::_ctc_loss_backward", "aten::set_"};
  return those.count(name) > 0;
}

bool has_mask(const Stack& arguments) {
  bool found = false;
  for (const auto& value : arguments) {
    if (!value.isOptionalTensorList() && !value.isTensorList()) continue;
    each_tensor(value, [&](const at::Tensor& index) {
      found |= index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
    });
  }
  return found;
}

[[noreturn]] void refuse_mixture(const std::string& name, const c10::Device& one, const c10::Device& other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", one,
              " and ", other, "! (in ", name, ")");
  std::abort();
}

class Survey {
 public:
  explicit Survey(const std::string& name) : name_(name) {}

  void look(const at::Tensor& tensor, bool written, bool first, bool is_index) {
    if (!tensor.defined()) return;
    if (tensor.is_cuda()) {
      TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, "gpulab: ", name_,
                                  " of a tensor that is not strided");
      const int own = tensor.device().index();
      if (device_ >= 0 && device_ != own)
        refuse_mixture(name_, at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_)), tensor.device());
      device_ = own;
    } else if (tensor.is_cpu()) {
      if (tensor.dim() == 0 && !written && !first) return;  // a number
      if (is_index || reads_lengths(name_)) return;
      host_ = host_ || tensor.dim() > 0 || written || (first && takes_indices(name_));
    }
  }
  int device() const {
    if (device_ >= 0 && host_)
      refuse_mixture(name_, at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_)), at::kCPU);
    return device_;
  }

 private:
  const std::string& name_;
  int device_ = -1;
  bool host_ = false;
};

int device_asked_for(const Stack& arguments) {
  for (const auto& value : arguments) {
    if (!value.isDevice() || !value.toDevice().is_cuda()) continue;
    return value.toDevice().has_index() ? value.toDevice().index() : current_device();
  }
  return current_device();
}

}  // namespace

cudaStream_t current_stream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
}

int device_of_call(const c10::FunctionSchema& schema, const Stack& arguments) {
  const auto& name = schema.operator_name().name;
  Survey survey(name);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    const bool is_index = takes_indices(name) && i == 1;
    each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      survey.look(tensor, alias && alias->isWrite(), i == 0, is_index);
    });
  }
  const int device = survey.device();
  return device >= 0 ? device : device_asked_for(arguments);
}

bool waits_for_host(const std::string& name, const Stack& arguments) {
  static const std::set<std::string> those = {
      "aten::_local_scalar_dense",
      "aten::nonzero",
      "aten::masked_select",
      "aten::_unique",
      "aten::_unique2",
      "aten::unique_dim",
      "aten::equal",
      "aten::unique_consecutive",
      "aten::repeat_interleave",
      "aten::bincount",
      "aten::_ctc_loss",
      "aten::unique_dim_consecutive",
  };
  return those.count(name) > 0 || (takes_indices(name) && has_mask(arguments));
}

void host_waits(cudaStream_t stream) {
  if (capturing(stream)) C10_CUDA_CHECK(cudaStreamSynchronize(stream));  // CUDA's error
  if (c10::cuda::warning_state().get_sync_debug_mode() != c10::cuda::SyncDebugMode::L_DISABLED)
    c10::cuda::warn_or_error_on_sync();
}

}  // namespace lab
