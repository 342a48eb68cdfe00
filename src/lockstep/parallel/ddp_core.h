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
  /// The graph is the same in every step: unused and reused parameters are recorded in the first step.
  bool static_graph = false;
  /// Gradients are views into the buckets: no copy, less memory.
  bool gradient_as_bucket_view = false;
  /// Buffers (BatchNorm's statistics) are rank 0's at construction, before each forward and after join().
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

  /// Whether buffers are synchronized before each forward and after join().
  bool syncs_buffers() const { return forward_sync_buffers.value_or(broadcast_buffers); }
  /// Whether the synchronization at construction sends buffers.
  bool syncs_first_buffers() const { return forward_sync_buffers.has_value() || broadcast_buffers; }
};

/// The options of Python's model.join().
struct JoinOptions {
  /// Divide by the world size even if ranks have run out of input; false divides by those still running.
  bool divide_by_initial_world_size = true;
  /// False: join() only runs the training.
  bool enable = true;
  /// Every rank throws as soon as one rank runs out of input.
  bool throw_on_early_termination = false;
};

}  // namespace lockstep

namespace torch::nn {
class Module;
}

namespace lockstep {

/// The part of DistributedDataParallel that does not depend on the module's type.
class DdpCore {
 public:
  DdpCore(std::shared_ptr<torch::nn::Module> module, ProcessGroup group, DdpOptions options);
  ~DdpCore();
  DdpCore(DdpCore&&) = delete;

  /// The ranks that share the gradients.
  const ProcessGroup& group() const;
  /// As given to the constructor.
  const DdpOptions& options() const;

  /// Runs `training` for ranks with different numbers of batches. Ranks that have finished join the others'
  /// collectives, and all end with the model of the rank that ran longest.
  void join(const std::function<void()>& training, const JoinOptions& options = {});

  /// Sets how buckets are reduced; once, before the first backward. `name` is for messages and checkpoints.
  void register_comm_hook(CommHook hook, const std::string& name = "user");
  /// The hook that was registered; empty without one.
  const CommHook& comm_hook() const;
  /// The name of that hook.
  const std::string& comm_hook_name() const;

  /// Every parameter once, also shared ones: for an optimizer.
  std::vector<at::Tensor> parameters() const;
  /// The same with the module's names.
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  /// Also works with gradient_as_bucket_view, unlike Optimizer::zero_grad.
  void zero_grad(bool set_to_none = true);
  /// For code that moves its model: throws InputError unless the parameters are already on `device`.
  void to(c10::Device device);

  /// Discards a step that an exception interrupted; call it on every rank before the next step.
  void reset();
  /// Throws if the last backward did not reduce every bucket.
  void check_finalized() const;
  /// The names of the parameters in each bucket, in the order of reduction.
  std::vector<std::vector<std::string>> bucket_names() const;
  /// The same for the next step, to be saved with a checkpoint. Collective.
  std::vector<std::vector<std::string>> settle_buckets();
  /// Starts with these buckets. With more than two ranks, gloo's and NCCL's sums depend on a gradient's place
  /// in its bucket, so a resumed run needs the saved ones for results that are equal bit for bit.
  void restore_buckets(const std::vector<std::vector<std::string>>& names);

  // What a forward calls.

  /// Synchronizes buffers and prepares the Reducer.
  void before_forward();
  /// Whether after_forward() needs the outputs.
  bool watches_outputs() const;
  /// Replaces outputs by copies that report to the Reducer the parameters which the loss does not use.
  void after_forward(const std::vector<at::Tensor*>& outputs);
  /// Whether backward exchanges gradients; false while a NoSync exists.
  bool syncs() const;
  /// Turns the exchange on or off; for NoSync.
  void set_syncs(bool syncs);
  /// Stops the Reducer's timing, which would synchronize with the GPU. A captured step must not do that.
  void stop_timing();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
