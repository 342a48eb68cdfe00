#pragma once
// DistributedDataParallel over libtorch's own c10d::Reducer: the same buckets, overlap and bits as Python's.
//
//   auto model = lockstep::ddp(Net(), session, {.find_unused_parameters = true});
//   auto loss = torch::nll_loss(model->forward(input), target);
//   loss.backward();                        // gradients are averaged over the ranks while this runs

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
        "lockstep: give a module as std::move(net), as a holder (TORCH_MODULE) or as "
        "std::shared_ptr<Net>; of an AnyModule any.ptr<Net>(), of a unique_ptr "
        "std::shared_ptr<Net>(std::move(net)), of TorchScript std::make_shared<TorchScriptNet>(path)");
  }
}

}  // namespace parallel

/// While it lives, gradients stay local and add up; the forward must run inside, too.
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

/// A module whose gradients are averaged over the ranks of a group. Made by ddp().
template <class M>
class DistributedDataParallel {
 public:
  DistributedDataParallel(std::shared_ptr<M> module, ProcessGroup group, DdpOptions options = {})
      : module_(std::move(module)), core_(module_, std::move(group), std::move(options)) {}

  /// The module's forward, with its arguments and result.
  template <class... Args>
  auto forward(Args&&... args) {
    return call([](M& module, auto&&... its) { return module.forward(std::forward<decltype(its)>(its)...); },
                std::forward<Args>(args)...);
  }
  /// `model->forward({a, b})`, if the module's takes a list of tensors.
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
  /// Another method instead of forward, synchronised in the same way:
  /// `model->call([](Net& net, at::Tensor x) { return net.encode(x); }, x)`. One call per backward.
  template <class Work, class... Args>
  auto call(const Work& work, Args&&... args) {
    core_.before_forward();
    const auto& device = options().device;
    using Output = std::invoke_result_t<const Work&, M&, Args&&...>;
    if constexpr (std::is_void_v<Output>) {
      work(*module_, Placed<Args>(std::forward<Args>(args), device).get()...);
      core_.after_forward({});
    } else {
      std::decay_t<Output> output = work(*module_, Placed<Args>(std::forward<Args>(args), device).get()...);
      // Copies: some types lend their tensors only during the visit.
      std::vector<at::Tensor> tensors;
      if (core_.watches_outputs())
        for_each_tensor(output, [&tensors](at::Tensor& tensor) { tensors.push_back(tensor); });
      std::vector<at::Tensor*> found;
      for (auto& tensor : tensors) found.push_back(&tensor);
      core_.after_forward(found);
      if (!tensors.empty())
        for_each_tensor(output, [next = tensors.begin()](at::Tensor& tensor) mutable { tensor = *next++; });
      return output;
    }
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  /// The module itself: a forward through it is not synchronised.
  const std::shared_ptr<M>& module() const { return module_; }
  /// The ranks that share the gradients.
  const ProcessGroup& group() const { return core_.group(); }
  /// As given to the constructor.
  const DdpOptions& options() const { return core_.options(); }

  /// `auto guard = model->no_sync();` adds gradients up without exchanging them.
  NoSync no_sync() { return NoSync(core_); }

  /// Runs `training` where ranks may have different numbers of batches: those that have finished join the
  /// others' collectives, and all end with the model of the rank that ran longest.
  void join(const std::function<void()>& training, const JoinOptions& options = {}) {
    core_.join(training, options);
  }

  /// Sets how buckets are reduced; once, before the first backward. `name` is for messages and checkpoints.
  void register_comm_hook(CommHook hook, const std::string& name = "user") {
    core_.register_comm_hook(std::move(hook), name);
  }

  /// Every parameter once, also shared ones: for an optimiser.
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> parameters;
    for (auto& [name, parameter] : core_.named_parameters()) parameters.push_back(std::move(parameter));
    return parameters;
  }
  /// The same with the module's names.
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const {
    return core_.named_parameters();
  }
  /// Works also with gradient_as_bucket_view, where Optimizer::zero_grad throws.
  void zero_grad(bool set_to_none = true) { core_.zero_grad(set_to_none); }
  /// The module's own.
  void train(bool on = true) { module_->train(on); }
  /// The module's own.
  void eval() { module_->eval(); }
  /// The module's own.
  bool is_training() const { return module_->is_training(); }
  /// The module's own.
  auto named_buffers() const { return module_->named_buffers(); }
  /// For programs that move their model: an error unless its parameters are already there.
  void to(c10::Device device) { core_.to(device); }

  /// Discards a step that an exception interrupted; call it on every rank before the next step.
  void reset() { core_.reset(); }
  /// Throws if the last backward did not reduce every bucket.
  void check_finalized() const { core_.check_finalized(); }
  /// The names of the parameters in each bucket, in the order of reduction.
  std::vector<std::vector<std::string>> bucket_names() const { return core_.bucket_names(); }
  /// The same for the next step, to be saved with a checkpoint. Collective.
  std::vector<std::vector<std::string>> settle_buckets() { return core_.settle_buckets(); }
  /// Starts with these buckets. Beyond two ranks gloo's and NCCL's sums depend on a gradient's place in its
  /// bucket, so a resumed run must continue with the saved ones to get the same bits.
  void restore_buckets(const std::vector<std::vector<std::string>>& names) { core_.restore_buckets(names); }

  /// The part that does not know the module's type.
  DdpCore& core() { return core_; }

 private:
  std::shared_ptr<M> module_;
  DdpCore core_;
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

/// torch::save(model, path) and torch::load(model, path) for the module. Save on one rank if all see the
/// file.
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
