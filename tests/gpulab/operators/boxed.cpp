#include "boxed.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <set>
#include <utility>

#include "call.h"
#include "lab.h"
#include "tensors.h"

namespace lab {
namespace {

struct Place {
  int device = 0;
  cudaStream_t stream = nullptr;
  bool captured = false;  // the stream is being captured
  bool late = false;      // LAB_STRICT: the call is made when the stream gets there
};

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
  static const std::string those =
      " aten::_local_scalar_dense aten::nonzero aten::masked_select aten::_unique aten::_unique2 "
      "aten::unique_dim aten::equal aten::unique_consecutive aten::repeat_interleave aten::bincount "
      "aten::_ctc_loss aten::unique_dim_consecutive ";
  return those.find(" " + name + " ") != std::string::npos || (takes_indices(name) && has_mask(arguments));
}

void host_waits(cudaStream_t stream) {
  if (capturing(stream)) C10_CUDA_CHECK(cudaStreamSynchronize(stream));  // CUDA's error
}

namespace {

/// The schema of batch normalization does not say that it writes the running averages.
bool is_written(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  if (argument.alias_info() && argument.alias_info()->isWrite()) return true;
  return schema.name() == "aten::native_batch_norm" && argument.name().rfind("running_", 0) == 0;
}

bool takes_generator(const c10::Argument& argument) {
  const auto& type = argument.type();
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  const auto optional = type->cast<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

/// One call, from the arguments of the dispatcher to the returns for it.
class Boxed {
 public:
  Boxed(const c10::OperatorHandle& op, Stack given)
      : op_(op),
        given_(std::move(given)),
        place_(place()),
        operands_(place_.late, place_.late || place_.captured) {}

  Stack run() {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(place_.device));
    if (!place_.captured) C10_CUDA_CHECK(drain(place_.stream));
    perhaps_fail(place_.device);
    const at::AutoDispatchBelowADInplaceOrView below;
    gather();
    if (place_.captured) put_back_when_captured();
    Stack returns = call_->run(arguments(/*first=*/true));
    operands_.follow_sizes(place_.late);
    call_->arguments = arguments(/*first=*/false);
    for (auto& value : returns) {
      value = with_tensors(value, [&](const at::Tensor& made) { return for_caller(made); });
    }
    run_again();
    return returns;
  }

 private:
  const std::string& name() const { return op_.schema().operator_name().name; }

  Place place() const {
    Place place;
    place.device = device_of_call(op_.schema(), given_);
    place.stream = current_stream(place.device);
    place.captured = capturing(place.stream);
    const bool waits = waits_for_host(name(), given_);
    if (waits) host_waits(place.stream);
    place.late = strict() && !place.captured && !waits;
    return place;
  }

  void gather() {
    const auto& expected = op_.schema().arguments();
    for (size_t i = 0; i < given_.size(); ++i) {
      each_tensor(given_[i], [&](const at::Tensor& tensor) {
        if (tensor.defined() && tensor.is_cpu() && tensor.dim() > 0)
          host_waits(place_.stream);  // is copied there
        operands_.add(tensor, is_written(op_.schema(), expected[i]));
      });
      if (takes_generator(expected[i])) call_->generator_at = static_cast<int>(i);
    }
    if (op_.hasTag(at::Tag::nondeterministic_seeded) || call_->generator_at >= 0) draw();
  }

  void draw() {
    std::optional<at::Generator> generator;
    if (call_->generator_at >= 0) {
      const auto& value = given_[static_cast<size_t>(call_->generator_at)];
      if (value.isGenerator()) generator = value.toGenerator();
    }
    call_->draw.emplace(generator, place_.device);
  }

  Stack arguments(bool first) const {
    Stack stack;
    for (size_t i = 0; i < given_.size(); ++i) {
      c10::IValue value = with_tensors(given_[i], [&](const at::Tensor& tensor) {
        return first ? operands_.first(tensor) : operands_.again(tensor);
      });
      if (value.isDevice()) value = c10::Device(at::kCPU);
      if (op_.schema().arguments()[i].name() == "pin_memory") value = c10::IValue();
      stack.push_back(std::move(value));
    }
    return stack;
  }

  /// What is written while a stream is captured must not have happened.
  void put_back_when_captured() const {
    for (const auto& written : operands_.written()) {
      undo(place_.stream, [snapshot = Snapshot(written)] { snapshot.restore(); });
    }
  }

  at::Tensor for_caller(const at::Tensor& made) {
    TORCH_CHECK_NOT_IMPLEMENTED(!made.defined() || made.layout() == at::kStrided, "gpulab: ", name(),
                                " returns a tensor that is ", made.layout());
    at::Tensor given = !made.defined() || !made.is_cpu() ? made : operands_.given_for(made);
    call_->destinations.emplace_back();
    if (given.defined() || !made.defined()) return given;
    const auto device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(place_.device));
    at::Tensor result = at::empty_strided(made.sizes(), made.strides(), made.options().device(device));
    if (made.is_conj()) result._set_conj(true);
    if (made.is_neg()) result._set_neg(true);
    if (made.unsafeGetTensorImpl()->is_wrapped_number())
      result.unsafeGetTensorImpl()->set_wrapped_number(true);
    const at::Tensor destination = alias_of(result);
    place_.late ? poison(destination) : copy_into(destination, made);
    call_->destinations.back() = destination;
    return result;
  }

  void run_again() const {
    if (place_.captured) {
      C10_CUDA_CHECK(enqueue(
          place_.stream, [call = call_] { call->run_into_place(); }, name().c_str()));
    } else if (place_.late) {
      const auto work = [call = call_] {
        pause();
        call->run_into_place();
      };
      C10_CUDA_CHECK(enqueue(place_.stream, work, name().c_str()));
    }
  }

  c10::OperatorHandle op_;
  Stack given_;
  Place place_;
  Operands operands_;
  std::shared_ptr<Call> call_ = std::make_shared<Call>(Call{op_, {}, {}, -1, {}});
};

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  Stack given(std::make_move_iterator(first), std::make_move_iterator(stack->end()));
  stack->erase(first, stack->end());
  Stack returns = Boxed(op, std::move(given)).run();
  for (auto& value : returns) stack->push_back(std::move(value));
}

void refuse(const c10::OperatorHandle& op, Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "gpulab: ", c10::toString(op.schema().operator_name()),
                              " is not imitated: the CPU has no kernel for it");
}

}  // namespace lab
