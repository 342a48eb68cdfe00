#pragma once
// DDP's switches, with Python's names, defaults and meanings.

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

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
