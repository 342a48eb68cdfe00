#pragma once
// DDP over the copies of a pipeline: the ranks with the same stage average its gradients, once a batch
// however many micro-batches it has.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/parallel/ddp_core.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/settings.h"
#include "trainer/modes/stage_net.h"
#include "trainer/observe/tracer.h"

namespace lockstep::train {

class StageDdp {
 public:
  using Buckets = std::vector<std::vector<std::string>>;

  /// Does nothing where there is one copy, or nothing to learn in the stage. Collective over the copies.
  StageDdp(std::shared_ptr<StageNet> net, const Team& copies, const DdpSettings& settings,
           const std::shared_ptr<Tracer>& tracer);

  bool exchanges() const { return core_ != nullptr; }
  DdpCore* core() const { return core_.get(); }
  std::shared_ptr<void> no_sync() const;
  /// Before a batch's first forward.
  void begin_batch();
  /// Before the backward of its last micro-batch, whose root may be replaced: gradients travel while it runs,
  /// and those of the other micro-batches have added up here before.
  void begin_last_backward(at::Tensor& root);

  /// Those of all stages: whichever way the model is cut when a run goes on, each stage finds its own among
  /// them. Collective over the copies and along the line.
  Buckets all_buckets(const Team& line) const;
  void restore_buckets(const Buckets& names) const;

 private:
  std::shared_ptr<StageNet> net_;
  std::unique_ptr<DdpCore> core_;
  std::shared_ptr<void> local_;  // a batch's backwards but the last
};

}  // namespace lockstep::train
