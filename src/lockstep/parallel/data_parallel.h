#pragma once
// DataParallel: one process, many devices. Each forward scatters the batch, copies the module to every
// device, runs all of them at once, and gathers the outputs on the first.
//
//   auto model = lockstep::data_parallel(Net());                      // every GPU; two threads without one
//   auto loss = torch::nll_loss(model->forward(input), target);       // on the first device
//   loss.backward();                                                  // gradients are summed there
//
// With the loss inside, no outputs are gathered, and the first device holds no more than the others:
//
//   auto loss = model->loss(input, target, [](const auto& output, const auto& wanted) { ... });

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/tensors.h"

namespace lockstep {

/// Every GPU that is visible to this process. Without a GPU, two logical CPU devices, each a thread with its
/// own replica.
std::vector<c10::Device> visible_devices();

/// The first `count` GPUs if `first` is a GPU, otherwise `count` logical CPU devices; 0 = all GPUs, or two
/// logical devices. Throws InputError if there are fewer.
std::vector<c10::Device> devices_like(c10::Device first, int count);

/// The part of DataParallel that does not depend on the module's type; DataParallel creates and calls it.
class DataParallelCore {
 public:
  /// Creates a replica of the module on a device.
  using MakeReplica = std::function<std::shared_ptr<torch::nn::Module>(c10::Device)>;
  /// The forward on one device: its replica, and its part of the tensors.
  using Forward = std::function<std::vector<at::Tensor>(size_t device, torch::nn::Module& replica,
                                                        const std::vector<at::Tensor>& inputs)>;

  DataParallelCore(std::shared_ptr<torch::nn::Module> module, std::vector<c10::Device> devices,
                   const MakeReplica& make);
  ~DataParallelCore();
  DataParallelCore(DataParallelCore&&) = delete;

  /// As given to the constructor.
  const std::vector<c10::Device>& devices() const;
  /// [device][tensor]: each tensor in chunks along its first dimension, as in Python; fewer than devices for
  /// a small batch. Tensors without dimensions go to all.
  std::vector<std::vector<at::Tensor>> scatter(const std::vector<at::Tensor>& whole) const;
  /// Replicates, runs `forward` on each device that has a share, and gathers on the first device.
  std::vector<at::Tensor> run(std::vector<std::vector<at::Tensor>> shares, const Forward& forward);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The weight of a device's loss in the mean: a 0-d tensor.
using LossWeight = std::function<at::Tensor(const at::Tensor& target)>;

/// A module replicated over the devices of one process. Created by data_parallel().
template <class M>
class DataParallel {
 public:
  /// `another` creates a replica; if unset, the module is cloned.
  DataParallel(std::shared_ptr<M> module, std::vector<c10::Device> devices,
               const std::function<std::shared_ptr<M>()>& another = {})
      : module_(std::move(module)),
        core_(module_, devices.empty() ? visible_devices() : std::move(devices), maker(*module_, another)) {}

  /// The module's forward over the whole batch, gathered on the first device. Outputs without dimensions
  /// become a row with one number per device.
  template <class... Args>
  auto forward(const Args&... args) {
    return apply([](M& replica, auto&... its) { return replica.forward(its...); }, args...);
  }
  template <class... Args>
  auto operator()(const Args&... args) {
    return forward(args...);
  }

  /// Each device computes `criterion(output, target)`, a mean, on its own thread. The result is their mean,
  /// weighted by samples (or by `weight`): the mean of the whole batch, whatever its size.
  template <class Criterion>
  at::Tensor loss(const at::Tensor& input, const at::Tensor& target, const Criterion& criterion,
                  const LossWeight& weight = samples) {
    const auto [losses, weights] = apply(
        [&](M& replica, const at::Tensor& own, const at::Tensor& wanted) {
          return std::pair<at::Tensor, at::Tensor>{criterion(replica.forward(own), wanted), weight(wanted)};
        },
        input, target);
    if (losses.numel() == 1) return losses.reshape({});
    return (losses * (weights / weights.sum()).to(losses)).sum();
  }

  /// `work(replica, args...)` on each device, with its part of every tensor in the arguments; the outputs are
  /// gathered.
  template <class Work, class... Args>
  auto apply(const Work& work, const Args&... args) {
    using Output = std::decay_t<std::invoke_result_t<Work, M&, std::decay_t<Args>&...>>;
    std::tuple<std::decay_t<Args>...> whole(args...);
    if (devices().size() == 1) {
      place(whole, core_.scatter(tensors_of(whole)).front());
      return std::apply([&](auto&... its) -> Output { return work(*module_, its...); }, whole);
    }
    auto shares = core_.scatter(tensors_of(whole));
    std::vector<std::optional<Output>> outputs(shares.size());
    const auto forward = [&](size_t i, torch::nn::Module& replica, const std::vector<at::Tensor>& inputs) {
      auto own = whole;
      place(own, inputs);
      outputs[i].emplace(
          std::apply([&](auto&... its) -> Output { return work(dynamic_cast<M&>(replica), its...); }, own));
      std::vector<at::Tensor> found;
      for_each_tensor(*outputs[i], [&found](at::Tensor& tensor) {
        if (tensor.defined()) found.push_back(tensor);
      });
      return found;
    };
    const auto gathered = core_.run(std::move(shares), forward);
    size_t next = 0;
    for_each_tensor(*outputs.front(), [&](at::Tensor& tensor) {
      if (tensor.defined()) tensor = gathered[next++];
    });
    return std::move(*outputs.front());
  }

  /// The module itself, on the first device: for optimizers and checkpoints.
  const std::shared_ptr<M>& module() const { return module_; }
  /// The replicas' devices.
  const std::vector<c10::Device>& devices() const { return core_.devices(); }
  /// Forwards to the module.
  std::vector<at::Tensor> parameters() const { return module_->parameters(); }
  /// Forwards to the module; each forward() updates the replicas.
  void train(bool on = true) { module_->train(on); }
  /// Forwards to the module.
  void eval() { module_->eval(); }
  /// Forwards to the module.
  void zero_grad(bool set_to_none = true) { module_->zero_grad(set_to_none); }
  /// The part that does not depend on the module's type.
  const DataParallelCore& core() const { return core_; }

  /// The default weight: the number of samples.
  static at::Tensor samples(const at::Tensor& target) {
    return at::full({}, static_cast<double>(target.size(0)), target.options().dtype(at::kDouble));
  }

 private:
  static DataParallelCore::MakeReplica maker(const M& module,
                                             const std::function<std::shared_ptr<M>()>& another) {
    return [&module, another](c10::Device device) -> std::shared_ptr<torch::nn::Module> {
      std::shared_ptr<M> made = another ? another() : cloned(module, device);
      if (made) made->to(device);
      return made;
    };
  }
  static std::shared_ptr<M> cloned(const M& module, c10::Device device) {
    try {
      return std::dynamic_pointer_cast<M>(static_cast<const torch::nn::Module&>(module).clone(device));
    } catch (const c10::Error&) {
      throw InputError("a module of type " + module.name() + " cannot be cloned", "data_parallel",
                       "derive it from torch::nn::Cloneable and create its layers in reset(), or pass "
                       "data_parallel a function that makes a replica");
    }
  }

  // The tensors of the arguments; place() replaces those of a copy in the same order.
  template <class Tuple>
  static std::vector<at::Tensor> tensors_of(Tuple& args) {
    std::vector<at::Tensor> found;
    walk(args, [&found](at::Tensor& tensor) { found.push_back(tensor); });
    return found;
  }
  template <class Tuple>
  static void place(Tuple& args, const std::vector<at::Tensor>& inputs) {
    size_t next = 0;
    walk(args, [&](at::Tensor& tensor) { tensor = inputs[next++]; });
  }
  template <class Tuple>
  static void walk(Tuple& args, const TensorVisitor& visit) {
    const auto defined = [&visit](at::Tensor& tensor) {
      if (tensor.defined()) visit(tensor);
    };
    std::apply([&](auto&... its) { (tensors::walk<true>(its, defined), ...); }, args);
  }

  std::shared_ptr<M> module_;
  DataParallelCore core_;
};

/// Wraps a module for the devices of one process; by default visible_devices(). The CPU may be given several
/// times. The module moves to the first device, and so do its inputs. If the module is not a
/// torch::nn::Cloneable, pass `another()`, which makes a replica as a shared pointer.
template <class Module, class Another = std::nullptr_t>
auto data_parallel(Module&& module, std::vector<c10::Device> devices = {}, Another another = {}) {
  auto shared = parallel::shared(std::forward<Module>(module));
  using M = typename decltype(shared)::element_type;
  return std::make_shared<DataParallel<M>>(std::move(shared), std::move(devices), std::move(another));
}

}  // namespace lockstep
