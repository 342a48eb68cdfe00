#pragma once
// A model in training, step by step, whose gradients travel in one of the ways that are compared.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/algorithm_backend.h"
#include "lockstep/data/dataset.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/ddp.h"
#include "trainer/setup/setup.h"

namespace lockstep::bench {

enum class Exchange { none, after_backward, in_buckets };

/// What is compared.
struct Method {
  std::string name;
  Exchange exchange;
  std::optional<double> bucket_cap_mb = {};  // in_buckets: DDP's
};

/// One step as it was timed on this rank.
struct Step {
  double seconds = 0;
  double busy = 0;   // of them, as long as the exchange was at work
  double shows = 0;  // of these, after the last gradient of this rank's own
  double loss = 0;
};

class Trainee {
 public:
  /// From the config's seed. Collective.
  Trainee(const train::Setup& setup, Method method);
  const Method& method() const { return method_; }
  /// Forward, backward, exchange, update; a barrier comes first. Collective.
  Step step(const Batch& batch);

 private:
  double learn(const Batch& batch);
  void exchange_all();
  void watch_last_gradient();

  const train::Setup& setup_;
  Method method_;
  std::shared_ptr<DistributedDataParallel<Net>> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::shared_ptr<std::chrono::steady_clock::time_point> last_gradient_;
};

/// The all-reduce of this bench's group.
comm::AlgorithmBackend& all_reduce_of(const ProcessGroup& group);

}  // namespace lockstep::bench
