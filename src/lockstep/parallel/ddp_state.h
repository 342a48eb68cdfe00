#pragma once
// What DdpCore holds and the collectives that training and join share. For this room alone.

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/connect.h"
#include "lockstep/parallel/ddp_core.h"
#include "lockstep/parallel/ddp_sink.h"
#include "lockstep/parallel/gradient_watch.h"
#include "lockstep/parallel/module_tensors.h"
#include "lockstep/parallel/reducer.h"

namespace lockstep {

struct DdpCore::State {
  std::shared_ptr<torch::nn::Module> module;
  ProcessGroup group;
  DdpOptions options;
  std::vector<parallel::ReducedParameter> parameters;
  std::vector<at::Tensor> buffers;
  at::Device device = at::kCPU;
  std::shared_ptr<parallel::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  std::shared_ptr<parallel::DelayedAllReduce> delayed;  // static graph's first iteration
  std::optional<JoinOptions> joining;                   // inside join()
  std::unique_ptr<parallel::GradientWatch> watch;       // none in a group of one
  CommHook hook;
  std::string hook_name;
  bool is_timed = true;  // logging_data() has times of some steps

  // Python's require_backward_grad_sync and require_forward_param_sync
  bool sync_gradients = true;
  bool sync_buffers = true;

  int rank() const { return group->getRank(); }
  int rank_in_job() const { return comm::rank_in_job(group, rank()); }
  bool watches_unused() const { return options.find_unused_parameters && !options.static_graph; }
  bool in_first_static_iteration() const { return options.static_graph && !delayed->queued; }
  bool will_sync_buffers() const { return sync_buffers && options.syncs_buffers() && !buffers.empty(); }

  /// `buckets`: those of an earlier Reducer, or none.
  void make_reducer(parallel::Buckets buckets = {});
  /// Once, after the first backward, in the order in which gradients came; collective.
  void rebuild_buckets();
  void install_hook();
  void stop_timing();
  void list_buffers();
  /// Parameters and, where asked for, buffers become those of one rank.
  void broadcast_module(int from, bool with_buffers);
  void broadcast_buffers(int from);

  at::Tensor all_reduced(double value) const;
  /// The highest rank whose condition holds.
  int common_rank(bool condition) const;

  void notify_join();
  bool any_rank_syncs(bool joined);
  void shadow_step();
  void shadow_until_all_joined();
  void forget_step();
};

}  // namespace lockstep
