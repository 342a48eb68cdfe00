#pragma once
// Communication hooks: the function that DDP calls for each full bucket, the built-in ones, and your own.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/version.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/table.h"
#include "lockstep/comm/group.h"

namespace c10d {
class GradBucket;
}

namespace lockstep {

/// The future of a reduced bucket.
using GradFuture = c10::intrusive_ptr<c10::ivalue::Future>;

/// A bucket of gradients as passed to a hook: a flat buffer and the parameters it belongs to.
class GradBucket {
 public:
  explicit GradBucket(c10d::GradBucket& bucket) : bucket_(bucket) {}
  /// The bucket's number; 0 is reduced first.
  int64_t index() const;
  /// True for the last bucket of a backward pass.
  bool is_last() const;
  /// All gradients of the bucket in one flat tensor; writing to it changes them.
  at::Tensor buffer() const;
  /// Replaces the buffer, also by one of another type or size, for hooks that wrap another hook.
  void set_buffer(at::Tensor buffer);
  /// Views of the buffer, one per parameter, in the parameters' shapes.
  std::vector<at::Tensor> gradients() const;
  /// The parameters themselves, in the same order.
  std::vector<at::Tensor> parameters() const;

 private:
  c10d::GradBucket& bucket_;
};

/// A hook's state on this rank: tensors by name.
using HookState = std::map<std::string, at::Tensor>;

/// How to save and load that state. A stateless hook leaves both empty.
struct HookMemory {
  std::function<HookState()> state = {};            ///< the current state
  std::function<void(const HookState&)> load = {};  ///< restores what `state` returned on the same rank
};

/// A function that DDP calls for each full bucket; its future holds the tensor that becomes the gradients.
/// The hook divides by the world size, as in Python. Any function of a GradBucket& converts to it.
class CommHook {  // NOLINTBEGIN(google-explicit-constructor)
 public:
  /// The function.
  using Call = std::function<GradFuture(GradBucket&)>;
  /// No hook.
  CommHook() = default;
  /// A hook whose state, if any, is not saved.
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, CommHook> &&
           std::is_invocable_r_v<GradFuture, F&, GradBucket&>) CommHook(F call)
      : call_(std::move(call)) {}
  // NOLINTEND(google-explicit-constructor)
  /// A hook with its state, so that a resumed run gives the same results, bit for bit.
  CommHook(Call call, HookMemory memory)
      : call_(std::move(call)), memory_(std::make_shared<const HookMemory>(std::move(memory))) {}
  /// A hook that wraps another one, whose state is saved.
  CommHook(Call call, const CommHook& inner) : call_(std::move(call)), memory_(inner.memory_) {}

  GradFuture operator()(GradBucket& bucket) const { return call_(bucket); }
  explicit operator bool() const { return static_cast<bool>(call_); }
  /// Null if the hook's state cannot be saved.
  const HookMemory* memory() const { return memory_.get(); }

 private:
  Call call_;
  std::shared_ptr<const HookMemory> memory_;
};

/// The built-in hooks, and helpers for your own.
namespace hooks {

/// Sums `tensor` over the ranks; the future holds the sum.
GradFuture all_reduce(const ProcessGroup& group, at::Tensor tensor);
/// A future that is already complete.
GradFuture ready(at::Tensor tensor);
/// Applies `next` to the tensor when it is ready.
GradFuture then(const GradFuture& future, std::function<at::Tensor(at::Tensor)> next);

/// The mean over the ranks, as without a hook.
CommHook allreduce(ProcessGroup group);
/// Sends gradients as float16, half the bytes (Python's fp16_compress_hook).
CommHook fp16_compress(ProcessGroup group);
/// Sends gradients as bfloat16, half the bytes with float32's range (Python's bf16_compress_hook).
CommHook bf16_compress(ProcessGroup group);
/// `hook` with the bucket converted to float16 (bfloat16) and back (Python's *_compress_wrapper).
CommHook fp16_compress_wrapper(CommHook hook);
CommHook bf16_compress_wrapper(CommHook hook);

/// Python's PowerSGDState, with its names and defaults.
struct PowerSgdOptions {
  int64_t matrix_approximation_rank = 1;
  int64_t start_powerSGD_iter = 1000;
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  bool warm_start = true;
  double orthogonalization_epsilon = 0;
  uint32_t random_seed = 0;
  bool batch_tensors_with_same_shape = false;
};

/// Low-rank compression of each weight's gradient (Vogels et al. 2019, Python's powerSGD_hook).
CommHook powersgd(ProcessGroup group, PowerSgdOptions options = {});

/// The hook with this name in the table of hooks, with the values under `ddp.options`; empty for `none`.
/// Throws InputError for an unknown name.
CommHook by_name(const std::string& name, ProcessGroup group, const RowOptions& options = {});

}  // namespace hooks

/// A row of the table of hooks.
using CommHookRow = RowOf<CommHook(ProcessGroup, const RowOptions&)>;

}  // namespace lockstep

/// Adds a hook, in the file that defines it: LOCKSTEP_COMM_HOOK(clamped, .help = "...", .make = make_clamped)
#define LOCKSTEP_COMM_HOOK(NAME, ...) \
  LOCKSTEP_ROW(comm_hook, "comm hook", NAME, lockstep::CommHookRow, sizeof(lockstep::CommHook), __VA_ARGS__)
