#pragma once
// Steps of full batches as replays of one that was captured: of a step the host does one launch, and nothing
// else.

#include <functional>
#include <vector>

#include "lockstep/comm/step_graph.h"
#include "lockstep/data/resident_set.h"
#include "lockstep/data/sampler.h"
#include "lockstep/optim/optimizer.h"
#include "trainer/observe/loss_trace.h"

namespace lockstep::train {

/// Which sample comes next, and where its batch's loss goes, is counted on the device. Steps are taken
/// plainly as long as DDP measures its own, where the batch is short, and where something has changed that
/// was captured.
class CapturedStep {
 public:
  /// So many plain steps: DDP measures its first ten, and lays its buckets out again in the second.
  static constexpr int kPlainSteps = 11;

  /// A whole step on a batch that lies on the device; its loss.
  using Work = std::function<at::Tensor(const Batch& batch)>;
  struct Parts {
    comm::StepGraph& graph;
    const data::ResidentSet& data;
    const Optimizer& optimizer;
    int64_t batch_size;
    int64_t most_batches;  // of an epoch
  };
  CapturedStep(const Parts& parts, Work work);

  /// The losses of the epoch before have been read.
  void begin_epoch(const SampleOrder& order);
  /// The epoch's next batch, which has these samples; step `number`.
  void run(int64_t number, const std::vector<int64_t>& indices, LossTrace& losses);

 private:
  bool can_replay(int64_t number);
  void capture(int64_t number);
  void take_next();
  void keep(const at::Tensor& loss);

  Parts parts_;
  Work work_;
  at::Tensor order_;         // int64 [batches, batch size], on the device as all here
  at::Tensor place_;         // int64 [1]: the batch that comes next
  at::Tensor losses_;        // of the epoch's batches; made when the first one shows its dtype
  int64_t next_ = 0;         // what place_ holds
  int plain_ = kPlainSteps;  // still to be taken
  bool is_captured_ = false;
  std::vector<double> momenta_;  // the optimiser's, of each group: captured as they are
};

}  // namespace lockstep::train
