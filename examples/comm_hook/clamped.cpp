// A communication hook of one's own: the mean over the ranks, no element of it beyond a limit.
#include <ATen/ATen.h>
#include <lockstep/base/error.h>
#include <lockstep/parallel/comm_hook.h>

namespace {

lockstep::CommHook make_clamped(lockstep::ProcessGroup group, const lockstep::RowOptions& options) {
  const auto limit = lockstep::option(options, "limit", 1.0);
  if (!(limit > 0)) throw lockstep::InputError("the limit must be above 0", "ddp.options.limit", "1 say");
  // With a hook DDP no longer divides by the number of ranks.
  const auto call = [group, limit](lockstep::GradBucket& bucket) {
    const auto sum = lockstep::hooks::all_reduce(group, bucket.buffer().div_(group->getSize()));
    return lockstep::hooks::then(sum, [limit](at::Tensor mean) { return mean.clamp_(-limit, limit); });
  };
  return {call,
          lockstep::HookMemory{}};  // it keeps nothing from step to step: a checkpoint needs nothing of it
}

}  // namespace

LOCKSTEP_COMM_HOOK(clamped, .help = "the mean, clamped to `options.limit`", .reads = {"options.limit"},
                   .make = make_clamped)
