// join(): ranks that have run out of batches go on taking part in the others' collectives, one for one.
#include <ATen/ops/full.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/parallel/ddp_state.h"

namespace lockstep {
namespace {

constexpr int64_t kWarnAfterSteps = 1000;

c10::intrusive_ptr<c10d::Work> start_all_reduce(const ProcessGroup& group, at::Tensor tensor,
                                                c10d::ReduceOp op = c10d::ReduceOp::SUM) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  return group->allreduce(tensors, options);
}

}  // namespace

at::Tensor DdpCore::State::all_reduced(double value) const {
  at::Tensor tensor = at::full({1}, value, at::TensorOptions().device(device).dtype(at::kFloat));
  start_all_reduce(group, tensor)->wait();
  return tensor;
}

int DdpCore::State::common_rank(bool condition) const {
  at::Tensor tensor =
      at::full({1}, condition ? rank() : -1, at::TensorOptions().device(device).dtype(at::kLong));
  start_all_reduce(group, tensor, c10d::ReduceOp::MAX)->wait();
  const auto found = tensor.item<int64_t>();
  if (found < 0) throw Error("no rank is left to take the model from", "join");
  return static_cast<int>(found);
}

// Says "I still have input", and hears whether another rank has none where that has to end the training.
void DdpCore::State::notify_join() {
  auto work = start_all_reduce(group, at::full({1}, 1, at::TensorOptions().device(device).dtype(at::kFloat)));
  if (joining->throw_on_early_termination && all_reduced(0).item<float>() != 0)
    throw Error("another rank has run out of input", format("join, rank {}", rank_in_job()),
                "give every rank the same number of batches, or leave throw_on_early_termination out");
  reducer->set_forward_pass_work_handle(work, joining->divide_by_initial_world_size);
}

bool DdpCore::State::any_rank_syncs(bool joined) {
  return all_reduced(!joined && sync_gradients ? 1 : 0).item<float>() != 0;
}

// The collectives of one training step of the others, with zeros for gradients.
void DdpCore::State::shadow_step() {
  rebuild_buckets();
  if (will_sync_buffers()) broadcast_buffers(common_rank(false));
  sync_buffers = any_rank_syncs(/*joined=*/true);
  if (!sync_buffers) return;

  std::vector<GradFuture> reductions;
  auto buckets = reducer->get_grad_buckets(/*return_zero_tensors=*/true);
  for (auto& bucket : buckets) reductions.push_back(reducer->run_comm_hook(bucket));
  for (const auto& reduction : reductions) reduction->waitAndThrow();
  if (watches_unused()) start_all_reduce(group, reducer->get_local_used_map_on_device())->wait();
  reducer->push_rebuilt_params_for_all_indices();
}

void DdpCore::State::shadow_until_all_joined() {
  bool ran_longest = true;
  for (int64_t steps = 0; all_reduced(0).item<float>() != 0; ++steps) {
    if (joining->throw_on_early_termination) {
      all_reduced(1);
      throw Error("this rank has run out of input", format("join, rank {}", rank_in_job()),
                  "give every rank the same number of batches, or leave throw_on_early_termination out");
    }
    if (steps == kWarnAfterSteps)
      log::warning(
          format("rank {} has at least {} batches fewer than others", rank_in_job(), kWarnAfterSteps));
    shadow_step();
    ran_longest = false;
  }
  broadcast_module(common_rank(ran_longest), options.syncs_buffers());
}

void DdpCore::join(const std::function<void()>& training, const JoinOptions& options) {
  if (!options.enable) return training();
  auto& state = *state_;
  if (state.joining)
    throw Error("join() inside join()", "DistributedDataParallel", "call the outer one alone");
  state.logger->set_uneven_input_join();
  struct Leave {
    State& state;
    ~Leave() { state.joining.reset(); }
  } leave{state};
  state.joining = options;
  training();
  state.shadow_until_all_joined();
}

}  // namespace lockstep
