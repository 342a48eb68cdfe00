#pragma once
// How gradients travel: the hook that DDP calls for each full bucket, the built-in ones, and room for your
// own.

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

/// A tensor that will be there later: the reduced bucket.
using GradFuture = c10::intrusive_ptr<c10::ivalue::Future>;

/// One bucket of gradients, as a hook meets it: a flat buffer and the parameters it belongs to.
class GradBucket {
 public:
  explicit GradBucket(c10d::GradBucket& bucket) : bucket_(bucket) {}
  /// The bucket's number; 0 is reduced first.
  int64_t index() const;
  /// True for the last bucket of a backward pass.
  bool is_last() const;
  /// All gradients of the bucket in one flat tensor; writing to it changes them.
  at::Tensor buffer() const;
  /// Another tensor in its place, of another type or size: what a wrapper sends on its way.
  void set_buffer(at::Tensor buffer);
  /// Views of the buffer, one a parameter, in the parameters' shapes.
  std::vector<at::Tensor> gradients() const;
  /// The parameters themselves, in the same order.
  std::vector<at::Tensor> parameters() const;

 private:
  c10d::GradBucket& bucket_;
};

/// What a hook keeps from one step to the next on this rank: tensors by name.
using HookState = std::map<std::string, at::Tensor>;

/// How that gets into a checkpoint and back. A hook that keeps nothing leaves both empty.
struct HookMemory {
  std::function<HookState()> state = {};            ///< as it is now
  std::function<void(const HookState&)> load = {};  ///< takes back what `state` gave, on the same rank
};

/// Called for each full bucket; its future holds the tensor that becomes the gradients. DDP no longer divides
/// by the world size: that is the hook's work, as in Python. Any function that takes a GradBucket& is one.
class CommHook {  // NOLINTBEGIN(google-explicit-constructor)
 public:
  /// What it does to a bucket.
  using Call = std::function<GradFuture(GradBucket&)>;
  /// No hook.
  CommHook() = default;
  /// What says nothing of what it keeps.
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, CommHook> &&
           std::is_invocable_r_v<GradFuture, F&, GradBucket&>) CommHook(F call)
      : call_(std::move(call)) {}
  // NOLINTEND(google-explicit-constructor)
  /// With what it keeps, so that a resumed run has the same bits.
  CommHook(Call call, HookMemory memory)
      : call_(std::move(call)), memory_(std::make_shared<const HookMemory>(std::move(memory))) {}
  /// Around another hook, whose memory it keeps.
  CommHook(Call call, const CommHook& inner) : call_(std::move(call)), memory_(inner.memory_) {}

  GradFuture operator()(GradBucket& bucket) const { return call_(bucket); }
  explicit operator bool() const { return static_cast<bool>(call_); }
  /// Null where the hook does not say what it keeps: a checkpoint goes without.
  const HookMemory* memory() const { return memory_.get(); }

 private:
  Call call_;
  std::shared_ptr<const HookMemory> memory_;
};

/// The built-in hooks, and the pieces that one of your own is made of.
namespace hooks {

/// Sums over the ranks; the future holds the tensor given.
GradFuture all_reduce(const ProcessGroup& group, at::Tensor tensor);
/// A future that is done already.
GradFuture ready(at::Tensor tensor);
/// What `next` makes of the tensor once it is there.
GradFuture then(const GradFuture& future, std::function<at::Tensor(at::Tensor)> next);

/// The mean over the ranks, as without a hook.
CommHook allreduce(ProcessGroup group);
/// Half the bytes: gradients travel as float16 (Python's fp16_compress_hook).
CommHook fp16_compress(ProcessGroup group);
/// Half the bytes with float32's range: gradients travel as bfloat16 (Python's bf16_compress_hook).
CommHook bf16_compress(ProcessGroup group);
/// `hook`, with the bucket in float16 (bfloat16) on its way in and out (Python's *_compress_wrapper).
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

/// A hook by its name in the table of hooks, with the texts of `ddp.options`; an empty one for none.
/// InputError for a name that is not there.
CommHook by_name(const std::string& name, ProcessGroup group, const RowOptions& options = {});

}  // namespace hooks

/// A row of the table of hooks.
using CommHookRow = RowOf<CommHook(ProcessGroup, const RowOptions&)>;

}  // namespace lockstep

/// Adds a hook, in the file that defines it: LOCKSTEP_COMM_HOOK(clamped, .help = "...", .make = make_clamped)
#define LOCKSTEP_COMM_HOOK(NAME, ...) \
  LOCKSTEP_ROW(comm_hook, "comm hook", NAME, lockstep::CommHookRow, sizeof(lockstep::CommHook), __VA_ARGS__)
