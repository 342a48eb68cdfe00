#pragma once
// What DDP does around a forward pass, whatever the module's type: the part of DistributedDataParallel
// without templates.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/comm_hook.h"

namespace lockstep {

// DDP's switches, with Python's names, defaults and meanings.

/// What Python's DistributedDataParallel takes beside the module and the group.
struct DdpOptions {
  /// Parameters may stay without a gradient, on some steps or some ranks; costs a walk over the graph a step.
  bool find_unused_parameters = false;
  /// The graph is the same in every step: unused parameters and reuse are learned in the first one.
  bool static_graph = false;
  /// Gradients are views into the buckets: no copy, less memory.
  bool gradient_as_bucket_view = false;
  /// Buffers (BatchNorm's statistics) are rank 0's at construction (with init_sync), before each forward and
  /// after join().
  bool broadcast_buffers = true;
  /// If set, it decides about each forward and join() in place of broadcast_buffers; at construction buffers
  /// are then always rank 0's (with init_sync).
  std::optional<bool> forward_sync_buffers = std::nullopt;
  /// Parameters are compared over the ranks and set to rank 0's at construction.
  bool init_sync = true;
  /// Parameters unused on all ranks travel not at all (needs find_unused_parameters; libtorch 2.8 and later).
  bool skip_all_reduce_unused_params = false;
  /// Size of a bucket. Unset: 1 MiB for the first, 25 MiB for the others.
  std::optional<double> bucket_cap_mb = std::nullopt;
  /// A size for each bucket (libtorch 2.11 and later).
  std::vector<double> bucket_cap_mb_list = {};
  /// A bucket's gradients are copied into it and out of it at once, and divided at once: fewer kernels on a
  /// GPU (libtorch 2.12 and later).
  bool batched_grad_copy = false;
  /// A bucket is there from its first gradient to the end of backward: less memory, and no bucket lies in
  /// shared memory (libtorch 2.15 and later).
  bool lazy_bucket_allocation = false;
  /// Names of parameters and buffers that stay each rank's own.
  std::vector<std::string> ignore = {};
  /// Inputs are moved to this device (Python's device_ids), also inside containers and plain structs; unset,
  /// they stay where they are.
  std::optional<c10::Device> device = std::nullopt;

  /// Whether buffers are synchronised before each forward and after join().
  bool syncs_buffers() const { return forward_sync_buffers.value_or(broadcast_buffers); }
  /// Whether the synchronisation at construction sends buffers.
  bool syncs_first_buffers() const { return forward_sync_buffers.has_value() || broadcast_buffers; }
};

/// What Python's model.join() takes.
struct JoinOptions {
  /// Divide by the world size even when ranks have run out of input; false divides by those still running.
  bool divide_by_initial_world_size = true;
  /// False: join() only runs the training.
  bool enable = true;
  /// As soon as one rank runs out, every rank throws.
  bool throw_on_early_termination = false;
};

}  // namespace lockstep

namespace torch::nn {
class Module;
}

namespace lockstep {

/// DistributedDataParallel without its module's type; made and called by it. Its members of the same names
/// say what each does.
class DdpCore {
 public:
  DdpCore(std::shared_ptr<torch::nn::Module> module, ProcessGroup group, DdpOptions options);
  ~DdpCore();
  DdpCore(const DdpCore&) = delete;
  DdpCore& operator=(const DdpCore&) = delete;

  /// Buffers are made alike and the reducer prepared.
  void before_forward();
  /// True where after_forward needs to see the outputs.
  bool watches_outputs() const;
  /// Puts watched tensors in the outputs' places.
  void after_forward(const std::vector<at::Tensor*>& outputs);

  /// Are gradients exchanged in a backward pass? Not while a NoSync lives.
  bool syncs() const;
  /// For NoSync.
  void set_syncs(bool syncs);
  /// How buckets travel.
  void register_comm_hook(CommHook hook, const std::string& name);
  /// The hook that was registered; empty without one.
  const CommHook& comm_hook() const;
  /// Its name.
  const std::string& comm_hook_name() const;
  /// Training over uneven numbers of batches.
  void join(const std::function<void()>& training, const JoinOptions& options);
  /// The Reducer measures no further steps: that would wait for the GPU, which a captured step cannot.
  void stop_timing();
  /// Forgets a step that was cut short.
  void reset();
  /// Throws where a bucket was not reduced.
  void check_finalized() const;
  /// Right with gradients that are views, too.
  void zero_grad(bool set_to_none);
  /// An error unless the exchanged parameters are on this device; the rest of the module moves there.
  void to(c10::Device device);
  /// Every parameter once, with its name.
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  /// The parameters' names, bucket by bucket.
  std::vector<std::vector<std::string>> bucket_names() const;
  /// The buckets as the next step will find them; collective.
  std::vector<std::vector<std::string>> settle_buckets();
  /// Begins with the buckets of a checkpoint.
  void restore_buckets(const std::vector<std::vector<std::string>>& names);

  /// The switches it was made with.
  const DdpOptions& options() const;
  /// The group that it averages over.
  const ProcessGroup& group() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
