#include "call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tensors.h"

namespace lab {
namespace {

constexpr uint64_t kAdvance = 4;  // of the offset, per call; CUDA's generator asks for multiples of it

at::PhiloxCudaState advance(const std::optional<at::Generator>& generator, int device) {
  const auto& own = at::cuda::detail::getDefaultCUDAGenerator(static_cast<c10::DeviceIndex>(device));
  auto* impl = at::get_generator_or_default<at::CUDAGeneratorImpl>(generator, own);
  const std::lock_guard lock(impl->mutex_);
  return impl->philox_cuda_state(kAdvance);
}

uint64_t scramble(uint64_t x) {  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

Draw::Draw(const std::optional<at::Generator>& generator, int device) : state_(advance(generator, device)) {}

uint64_t Draw::seed() const {
  const bool captured = state_.captured_;
  const auto seed = captured ? static_cast<uint64_t>(*state_.seed_.ptr) : state_.seed_.val;
  const auto offset =
      captured ? static_cast<uint64_t>(*state_.offset_.ptr) + state_.offset_intragraph_ : state_.offset_.val;
  return scramble(seed * 0x9e3779b97f4a7c15ULL + offset + 1);
}

at::Generator Draw::generator() const {
  return at::make_generator<at::CPUGeneratorImpl>(seed());
}

namespace {

bool is_narrow(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

/// The half precision type among the arguments, or Undefined.
at::ScalarType narrow_type_of(const Stack& stack) {
  auto found = at::ScalarType::Undefined;
  for (const auto& value : stack) {
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined() && is_narrow(tensor.scalar_type())) found = tensor.scalar_type();
    });
  }
  return found;
}

/// Operators that were found to have no such kernel: throwing costs a millisecond.
class Lacking {
 public:
  bool has(const c10::OperatorName& name, at::ScalarType type) {
    const std::lock_guard lock(mutex_);
    return names_.count({c10::toString(name), type}) > 0;
  }
  void add(const c10::OperatorName& name, at::ScalarType type) {
    const std::lock_guard lock(mutex_);
    names_.emplace(c10::toString(name), type);
    any_ = true;
  }
  bool any() const { return any_; }

 private:
  std::mutex mutex_;
  std::set<std::pair<std::string, at::ScalarType>> names_;
  std::atomic<bool> any_{false};
};

Lacking& lacking() {
  static auto* names = new Lacking;
  return *names;
}

bool says_lacking(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  for (const char* type : {"'Half'", "'BFloat16'"})
    if (text.find(std::string("not implemented for ") + type) != std::string::npos) return true;
  return false;
}

class Widened {
 public:
  explicit Widened(at::ScalarType narrow) : narrow_(narrow) {}

  at::Tensor widen(const at::Tensor& tensor) {
    if (!tensor.defined() || !is_narrow(tensor.scalar_type())) return tensor;
    for (const auto& [given, wide] : pairs_)
      if (given.is_same(tensor)) return wide;
    pairs_.emplace_back(tensor, tensor.to(at::kFloat));
    return pairs_.back().second;
  }
  at::Tensor narrow(const at::Tensor& made) const {
    for (const auto& [given, wide] : pairs_)
      if (wide.is_same(made)) return given;
    return made.defined() && made.scalar_type() == at::kFloat ? made.to(narrow_) : made;
  }
  void write_back(const c10::IValue& written) const {
    each_tensor(written, [&](const at::Tensor& tensor) {
      for (const auto& [given, wide] : pairs_) {
        if (!given.is_same(tensor)) continue;
        if (given.sizes() != wide.sizes()) given.resize_(wide.sizes());
        given.copy_(wide);
      }
    });
  }

 private:
  at::ScalarType narrow_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

void run_in_float(const c10::OperatorHandle& op, Stack& stack, at::ScalarType narrow) {
  const Stack given = stack;
  Widened widened(narrow);
  for (auto& value : stack)
    value = with_tensors(value, [&](const auto& tensor) { return widened.widen(tensor); });
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  for (size_t i = 0; i < given.size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    if (alias && alias->isWrite()) widened.write_back(given[i]);
  }
  for (auto& value : stack)
    value = with_tensors(value, [&](const auto& made) { return widened.narrow(made); });
}

}  // namespace

void run_on_cpu_or_in_float(const c10::OperatorHandle& op, Stack& stack) {
  const c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
  const auto narrow = narrow_type_of(stack);
  if (narrow == at::ScalarType::Undefined) return op.redispatchBoxed(cpu, &stack);
  const auto& name = op.schema().operator_name();
  if (!lacking().any() || !lacking().has(name, narrow)) {
    Stack tried = stack;
    try {
      op.redispatchBoxed(cpu, &tried);
      stack = std::move(tried);
      return;
    } catch (const c10::Error& error) {
      if (!says_lacking(error)) throw;
      lacking().add(name, narrow);
    }
  }
  run_in_float(op, stack, narrow);
}

namespace {

std::mutex default_generator;

/// The generator's state, and what seeds it for one call.
at::Tensor seed_default(at::Generator& generator, uint64_t seed) {
  const std::lock_guard lock(generator.mutex());
  at::Tensor before = generator.get_state();
  generator.set_current_seed(seed);
  return before;
}

/// For the few operators that draw and take no generator: they use the CPU's default one.
void run_with_default(const c10::OperatorHandle& op, Stack& stack, uint64_t seed) {
  const std::lock_guard alone(default_generator);
  auto generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = seed_default(generator, seed);
  run_on_cpu_or_in_float(op, stack);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(before);
}

}  // namespace

Stack Call::run(Stack stack) const {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  if (draw && generator_at < 0) {
    run_with_default(op, stack, draw->seed());
    return stack;
  }
  if (draw) {
    c10::IValue generator = draw->generator();
    stack[static_cast<size_t>(generator_at)].swap(generator);
  }
  run_on_cpu_or_in_float(op, stack);
  return stack;
}

void Call::run_into_place() const {
  size_t at = 0;
  for (const auto& value : run(arguments)) {
    each_tensor(value, [&](const at::Tensor& made) {
      const at::Tensor& to = destinations.at(at++);
      if (to.defined()) copy_into(to, made);
    });
  }
}

}  // namespace lab
