#pragma once
// DistributedDataParallel with libtorch's c10d::Reducer: the same buckets, overlap and results as Python's,
// bit for bit.

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/parallel/ddp_core.h"
#include "lockstep/parallel/session.h"
#include "lockstep/parallel/tensors.h"

namespace lockstep {

namespace parallel {

template <class T>
constexpr bool kNever = false;
template <class T>
constexpr bool is_module = std::derived_from<T, torch::nn::Module>;
template <class T>
constexpr bool is_shared_module = false;
template <class M>
constexpr bool is_shared_module<std::shared_ptr<M>> = is_module<M>;

// A shared pointer to a module that the program holds by value, holder or pointer.
template <class Held>
auto shared(Held&& held) {
  using T = std::remove_cvref_t<Held>;
  if constexpr (requires { typename T::ContainedType; }) {
    return std::shared_ptr<typename T::ContainedType>(held.ptr());
  } else if constexpr (is_shared_module<T>) {
    return T(std::forward<Held>(held));
  } else if constexpr (is_module<T> && !std::is_lvalue_reference_v<Held>) {
    return std::make_shared<T>(std::forward<Held>(held));
  } else {
    static_assert(
        kNever<T>,
        "lockstep: give a module as std::move(net), as a holder (TORCH_MODULE) or as std::shared_ptr<Net>; "
        "for an AnyModule any.ptr<Net>(), for a unique_ptr std::shared_ptr<Net>(std::move(net)), for "
        "TorchScript std::make_shared<TorchScriptNet>(path)");
  }
}

}  // namespace parallel

/// While this guard exists, gradients stay local and add up. The forward must run inside, too.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(DdpCore& core) : core_(core), before_(core.syncs()) { core_.set_syncs(false); }
  ~NoSync() { core_.set_syncs(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DdpCore& core_;
  bool before_;
};

/// A module whose gradients are averaged over the ranks of a group. Created by ddp().
template <class M>
class DistributedDataParallel : public DdpCore {
 public:
  DistributedDataParallel(std::shared_ptr<M> module, ProcessGroup group, DdpOptions options = {})
      : DdpCore(module, std::move(group), std::move(options)), module_(std::move(module)) {}

  /// The module's forward, with its arguments and result.
  template <class... Args>
  auto forward(Args&&... args) {
    return call([](M& module, auto&&... its) { return module.forward(std::forward<decltype(its)>(its)...); },
                std::forward<Args>(args)...);
  }
  /// `model->forward({a, b})`, if the module's forward takes a list of tensors.
  auto forward(std::initializer_list<at::Tensor> tensors) {
    using List = std::vector<at::Tensor>;
    constexpr bool takes_list = requires(M & module, List list) {
      module.forward(std::move(list));
    };
    if constexpr (takes_list) {
      return forward(List(tensors));
    } else {
      static_assert(parallel::kNever<M>,
                    "lockstep: write the type before the braces, as in model->forward(Batch{a, b})");
    }
  }
  /// Another method instead of forward, synchronized in the same way:
  /// `model->call([](Net& net, at::Tensor x) { return net.encode(x); }, x)`. One call per backward.
  template <class Work, class... Args>
  auto call(const Work& work, Args&&... args) {
    before_forward();
    const auto& device = options().device;
    using Output = std::invoke_result_t<const Work&, M&, Args&&...>;
    if constexpr (std::is_void_v<Output>) {
      work(*module_, DeviceArg<Args>(std::forward<Args>(args), device).get()...);
      after_forward({});
    } else {
      std::decay_t<Output> output =
          work(*module_, DeviceArg<Args>(std::forward<Args>(args), device).get()...);
      // Copies: some types lend their tensors only during the visit.
      std::vector<at::Tensor> tensors;
      if (watches_outputs())
        for_each_tensor(output, [&tensors](at::Tensor& tensor) { tensors.push_back(tensor); });
      std::vector<at::Tensor*> found;
      for (auto& tensor : tensors) found.push_back(&tensor);
      after_forward(found);
      if (!tensors.empty())
        for_each_tensor(output, [next = tensors.begin()](at::Tensor& tensor) mutable { tensor = *next++; });
      return output;
    }
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  /// The module itself. Calls to its forward are not synchronized.
  const std::shared_ptr<M>& module() const { return module_; }
  /// `auto guard = model->no_sync();` adds gradients up without exchanging them.
  NoSync no_sync() { return NoSync(*this); }

  /// Forwards to the module.
  void train(bool on = true) { module_->train(on); }
  /// Forwards to the module.
  void eval() { module_->eval(); }
  /// Forwards to the module.
  bool is_training() const { return module_->is_training(); }
  /// Forwards to the module.
  auto named_buffers() const { return module_->named_buffers(); }
  /// The part that does not depend on the module's type.
  DdpCore& core() { return *this; }

 private:
  std::shared_ptr<M> module_;
};

/// Wraps a module (a value, a holder or a shared pointer) for data-parallel training over the group. The
/// module stays on its device. Collective: every rank calls it, with the same parameters and options.
template <class Module>
auto ddp(Module&& module, ProcessGroup group, DdpOptions options = {}) {
  auto shared = parallel::shared(std::forward<Module>(module));
  using M = typename decltype(shared)::element_type;
  return std::make_shared<DistributedDataParallel<M>>(std::move(shared), std::move(group),
                                                      std::move(options));
}

/// The same over the session's ranks. The module moves to the session's device (a module on several GPUs
/// overrides to()), and so do its inputs.
template <class Module>
auto ddp(Module&& module, const Session& session, DdpOptions options = {}) {
  auto shared = parallel::shared(std::forward<Module>(module));
  shared->to(session.device());
  if (!options.device && !session.device().is_cpu()) options.device = session.device();
  return ddp(std::move(shared), session.group(), std::move(options));
}

/// Support torch::save(model, path) and torch::load(model, path) for the module. If all ranks share the file
/// system, save on one rank only.
template <class M>
torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const std::shared_ptr<DistributedDataParallel<M>>& model) {
  return archive << std::static_pointer_cast<torch::nn::Module>(model->module());
}
template <class M>
torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           const std::shared_ptr<DistributedDataParallel<M>>& model) {
  return archive >> std::static_pointer_cast<torch::nn::Module>(model->module());
}

}  // namespace lockstep
