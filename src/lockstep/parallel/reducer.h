#pragma once
// c10d's Reducer and Logger, made as Python's DDP makes them.

#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/parallel/ddp_options.h"
#include "lockstep/parallel/module_tensors.h"

namespace lockstep::parallel {

/// libtorch's, with a look at its buckets: get_grad_buckets() refuses where one has no buffer
/// (libtorch 2.15), and that of a sparse gradient has none before its first backward pass.
class Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;
  /// Of the buckets that have one now: not of sparse gradients, nor of buckets that are allocated lazily.
  std::vector<at::Tensor> buffers() const;
  /// The parameters of each bucket, in the order of the sums.
  std::vector<std::vector<at::Tensor>> bucket_parameters() const;
};

/// The two belong together: the Reducer asks its Logger without looking whether it is there.
struct ReducerAndLogger {
  std::shared_ptr<Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
};

/// Which parameters, by index, share a bucket.
using Buckets = std::vector<std::vector<size_t>>;

/// `buckets`: those of an earlier Reducer; empty: as Python starts.
ReducerAndLogger make_reducer(const std::vector<ReducedParameter>& parameters,
                              const c10::intrusive_ptr<c10d::ProcessGroup>& group, const DdpOptions& options,
                              const torch::nn::Module& module, Buckets buckets);

/// Where the group sums without copies, the buckets move to where it can. Collective; for buckets just made.
void share_buckets(const Reducer& reducer, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace lockstep::parallel
