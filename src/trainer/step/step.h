#pragma once
// What learns, and one training step.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/resident_set.h"
#include "lockstep/data/sampler.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "trainer/modes/model.h"
#include "trainer/observe/loss_trace.h"
#include "trainer/observe/phase_clock.h"
#include "trainer/observe/trace.h"
#include "trainer/setup/setup.h"
#include "trainer/step/feed.h"

namespace lockstep::train {

/// A model, its optimizer and what goes with them. All of it goes into a checkpoint.
struct Learner {
  std::unique_ptr<SampleSource> source;
  std::shared_ptr<Tracer> tracer;  // where train.trace asks for one
  EpochPlan rounds;                // how long it is to learn: a schedule depends on it
  std::unique_ptr<TrainedModel> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Schedule> schedule;
  std::unique_ptr<GradScaler> scaler;      // fp16 alone
  std::unique_ptr<comm::StepGraph> graph;  // with train.graph alone
  Tree memory;                             // the task's, for predict; the same in every checkpoint
};

/// As the settings say, at the first step. Collective.
Learner make_learner(const Setup& setup);

/// This rank's parameters under the model's names.
std::vector<NamedParameter> named_parameters(const TrainedModel& model);

/// What the states of all trained parameters take on this rank, in the words of the optimizer itself.
double state_bytes_of(const Optimizer& optimizer);

// Copies batches to a GPU on a stream of its own, so that the next one is copied while a step computes.

/// The tensor itself if it is there already.
at::Tensor on_device(const at::Tensor& tensor, at::Device device);

class BatchCopies {
 public:
  struct Placed {
    at::Tensor input, target;
  };

  explicit BatchCopies(at::Device device);
  /// Waits for its copies.
  ~BatchCopies();
  BatchCopies(const BatchCopies&) = delete;
  BatchCopies& operator=(const BatchCopies&) = delete;

  /// Whether a copy runs while the device computes.
  bool overlap() const { return stream_.has_value(); }
  /// Starts to copy the batch that is taken next, if there is one. take() repeats what fails here.
  void begin(const Batch* batch);
  /// The batch on the device, for kernels that are launched from now on.
  Placed take(const Batch& batch);

 private:
  // What a copy reads stays until it is done.
  struct Source {
    at::Tensor input, target;
    std::shared_ptr<const c10::Event> done;
  };
  struct Copy {
    Source of;
    Placed placed;
  };
  Copy send(const Batch& batch);
  void release_finished();

  const at::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<Copy> next_;
  std::deque<Source> under_way_;
};

// train.graph: steps of full batches replay a captured one, with one launch each.

/// The device counts which samples come next, and where their loss goes. A step is not replayed while DDP
/// measures its own, where the batch is short, and after a captured value has changed.
class CapturedStep {
 public:
  /// DDP measures its first ten steps, and arranges its buckets anew in the second.
  static constexpr int kPlainSteps = 11;

  /// A whole step on a batch on the device; its loss.
  using Work = std::function<at::Tensor(const Batch& batch)>;
  struct Parts {
    comm::StepGraph& graph;
    const data::ResidentSet& data;
    const Optimizer& optimizer;
    int64_t batch_size;
    int64_t most_batches;  // of an epoch
  };
  CapturedStep(const Parts& parts, Work work);

  /// After the losses of the epoch before were read.
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
  std::vector<double> momenta_;  // the optimizer's, of each group: captured as they are
};

class TrainingStep {
 public:
  TrainingStep(const Setup& setup, Learner& learner);
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// Before an epoch's first step.
  void begin_epoch(const SampleOrder& order);
  /// One optimizer step over the batches of the step that the epoch is at, each loss divided by their number.
  void run(int64_t number, EpochFeed& epoch, LossTrace& losses, PhaseClock& clock);
  /// The names of the parameters that had only zero gradients so far; the next call returns none.
  std::vector<std::string> take_untrained();

 private:
  std::unique_ptr<CapturedStep> captured_step(const Setup& setup, const Learner& learner);
  void run_captured(int64_t number, EpochFeed& epoch, LossTrace& losses, PhaseClock& clock);
  at::Tensor learn(const Batch& batch);
  StepContext make_context();
  LossOptions loss_on(at::Device device) const;
  void update();
  void look_for_gradients();
  void backward(const at::Tensor& loss);
  template <class Work>
  void timed_backward(const Work& work);

  TrainedModel& model_;
  Optimizer& optimizer_;
  GradScaler* scaler_;  // fp16 alone
  const Task& task_;
  LossOptions loss_;
  const Settings& settings_;
  at::Device device_;
  const int64_t last_step_;  // of the run: no batch follows
  std::vector<at::Tensor> parameters_;
  std::vector<NamedParameter> untrained_;  // so far; no captured step looks
  unsigned looks_ = 0;
  BatchCopies copies_;
  // When the last own gradient was there, while a backward is timed.
  struct GradientsDone {
    PhaseClock* clock = nullptr;
    std::optional<PhaseClock::Moment> moment = {};
  };
  std::shared_ptr<GradientsDone> gradients_done_;
  const StepContext context_;
  std::unique_ptr<CapturedStep> captured_;  // with train.graph alone
  PhaseClock* clock_ = nullptr;             // of the step that runs
  int64_t batches_ = 1;                     // in it
};

/// A batch's input where and how the model wants it, for its next forward.
at::Tensor placed(Net& net, const at::Tensor& input, at::Device device, ImageLayout layout);

}  // namespace lockstep::train
