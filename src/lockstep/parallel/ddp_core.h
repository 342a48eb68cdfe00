#pragma once
// The part of DistributedDataParallel that does not depend on the module's type.

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

/// The options of Python's DistributedDataParallel, with its names, defaults and meanings.
struct DdpOptions {
  /// Parameters may have no gradient in some steps or on some ranks; costs a walk over the graph per step.
  bool find_unused_parameters = false;
  /// The graph is the same in every step: unused parameters and reuse are learned in the first one.
  bool static_graph = false;
  /// Gradients are views into the buckets: no copy, less memory.
  bool gradient_as_bucket_view = false;
  /// Buffers (BatchNorm's statistics) are rank 0's at construction (with init_sync), before each forward and
  /// after join().
  bool broadcast_buffers = true;
  /// If set, it replaces broadcast_buffers for each forward and join(); at construction buffers are then
  /// always rank 0's (with init_sync).
  std::optional<bool> forward_sync_buffers = std::nullopt;
  /// At construction, compares the ranks' parameters and sets them to rank 0's.
  bool init_sync = true;
  /// Does not send parameters unused on all ranks (needs find_unused_parameters; libtorch 2.8 and later).
  bool skip_all_reduce_unused_params = false;
  /// Size of a bucket. Unset: 1 MiB for the first, 25 MiB for the others.
  std::optional<double> bucket_cap_mb = std::nullopt;
  /// A size for each bucket (libtorch 2.11 and later).
  std::vector<double> bucket_cap_mb_list = {};
  /// Copies and divides a bucket's gradients together: fewer kernels on a GPU (libtorch 2.12 and later).
  bool batched_grad_copy = false;
  /// A bucket exists only from its first gradient to the end of backward: less memory, but no bucket is in
  /// shared memory (libtorch 2.15 and later).
  bool lazy_bucket_allocation = false;
  /// Names of parameters and buffers that stay local to each rank.
  std::vector<std::string> ignore = {};
  /// Moves inputs to this device (Python's device_ids), also inside containers and plain structs.
  std::optional<c10::Device> device = std::nullopt;

  /// Whether buffers are synchronised before each forward and after join().
  bool syncs_buffers() const { return forward_sync_buffers.value_or(broadcast_buffers); }
  /// Whether the synchronisation at construction sends buffers.
  bool syncs_first_buffers() const { return forward_sync_buffers.has_value() || broadcast_buffers; }
};

/// The options of Python's model.join().
struct JoinOptions {
  /// Divide by the world size even if ranks have run out of input; false divides by those still running.
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

/// DistributedDataParallel without its module's type, which documents the members of the same names.
class DdpCore {
 public:
  DdpCore(std::shared_ptr<torch::nn::Module> module, ProcessGroup group, DdpOptions options);
  ~DdpCore();
  DdpCore(const DdpCore&) = delete;
  DdpCore& operator=(const DdpCore&) = delete;

  /// Synchronises buffers and prepares the Reducer.
  void before_forward();
  /// True if after_forward needs the outputs.
  bool watches_outputs() const;
  /// Replaces the outputs by watched tensors.
  void after_forward(const std::vector<at::Tensor*>& outputs);

  /// Are gradients exchanged in a backward pass? Not while a NoSync lives.
  bool syncs() const;
  /// For NoSync.
  void set_syncs(bool syncs);
  /// Sets how buckets are reduced.
  void register_comm_hook(CommHook hook, const std::string& name);
  /// The hook that was registered; empty without one.
  const CommHook& comm_hook() const;
  /// Its name.
  const std::string& comm_hook_name() const;
  /// Training over uneven numbers of batches.
  void join(const std::function<void()>& training, const JoinOptions& options);
  /// The Reducer measures no further steps: that would wait for the GPU, which a captured step cannot.
  void stop_timing();
  /// Discards an interrupted step.
  void reset();
  /// Throws if a bucket was not reduced.
  void check_finalized() const;
  /// Works also with gradients that are views.
  void zero_grad(bool set_to_none);
  /// An error unless the exchanged parameters are on this device; the rest of the module moves there.
  void to(c10::Device device);
  /// Every parameter once, with its name.
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  /// The parameters' names, bucket by bucket.
  std::vector<std::vector<std::string>> bucket_names() const;
  /// The buckets of the next step; collective.
  std::vector<std::vector<std::string>> settle_buckets();
  /// Starts with the buckets of a checkpoint.
  void restore_buckets(const std::vector<std::vector<std::string>>& names);

  /// As given to the constructor.
  const DdpOptions& options() const;
  /// The group that it averages over.
  const ProcessGroup& group() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
