#pragma once
// A pipeline's line of ranks: sends activations and gradients from stage to stage.

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/team.h"

namespace lockstep::parallel {

/// Shape, dtype and strides are sent before an output, once for each shape of the pipeline's input, which
/// every stage knows. A model whose outputs' shapes depend on anything else is refused. They go from CPU to
/// CPU, whatever sends the tensors. A gradient has the form of its output.
class StageLine {
 public:
  using Sizes = std::vector<int64_t>;

  /// A tensor to send, or the memory for one to receive.
  struct Parcel {
    bool sends;
    int peer;
    at::Tensor tensor;
  };

  /// The ranks of one copy of the model, by stage. Collective over them.
  explicit StageLine(Team line);

  int stage() const { return line_.rank(); }
  int stages() const { return line_.world(); }
  bool is_first() const { return line_.first(); }
  bool is_last() const { return stage() + 1 == stages(); }
  const Team& team() const { return line_; }

  // What is sent; `batch` is the shape of the micro-batch as the pipeline's input.

  /// To the next stage.
  Parcel output(const at::Tensor& tensor, const Sizes& batch);
  /// From the stage before; waits for the form if it is not known yet. The tensor requires a gradient if the
  /// sender's does.
  Parcel input(const Sizes& batch);
  /// The gradient of `input`, back to the stage before; zeros if there is none.
  Parcel gradient_of(const at::Tensor& input) const;
  /// From the next stage, the gradient of an output.
  Parcel gradient(const Sizes& batch) const;

  /// As one group, if the backend supports groups. What is received is ready for the next operation on this
  /// device; what is sent is kept until it has been sent.
  void exchange(const std::vector<Parcel>& parcels);
  /// Returns when everything has been sent; ends a batch.
  void flush() { release(0); }
  /// The last stage's tensor on every stage.
  at::Tensor from_last(const at::Tensor& mine, const Sizes& batch);

 private:
  /// What a receiver needs to know before the bytes.
  struct TensorForm {
    at::ScalarType dtype;
    bool needs_gradient;
    Sizes sizes, strides;
    bool operator==(const TensorForm&) const = default;
    std::string text() const;
  };
  using Key = std::pair<bool, Sizes>;  // grad mode, and the shape of the pipeline's input
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct PendingTransfer {
    WorkPtr work;
    std::vector<at::Tensor> tensors;
    bool receives;
  };
  static TensorForm form_of(const at::Tensor& tensor);
  static at::Tensor packed(const TensorForm& form);
  static TensorForm unpacked(const at::Tensor& header);
  static at::Tensor dense(const at::Tensor& tensor);
  at::Tensor empty(const TensorForm& form) const;
  static Key key(const Sizes& batch);
  void connect();
  WorkPtr post(const Parcel& parcel) const;
  std::vector<PendingTransfer> post_all(const std::vector<Parcel>& parcels) const;
  size_t unanswered() const;
  void release(size_t kept);

  Team line_;
  bool groups_;  // does the backend of the tensors support groups?
  std::map<Key, TensorForm> sent_forms_, received_forms_, result_forms_;
  std::deque<PendingTransfer> sent_;
};

/// A stage's work on a micro-batch.
struct Turn {
  bool forward;  // else backward
  int64_t micro_batch;

  bool operator==(const Turn&) const = default;
};

/// A micro-batch on its way to a neighbor or from one: an output forward, a gradient back.
struct StageMessage {
  bool sends;  // else it is received
  bool forward;
  int64_t micro_batch;
  int peer;  // the neighbor's stage

  bool operator==(const StageMessage&) const = default;
};

/// The messages are one group, as NCCL defines it: all are under way at once, and the turn waits for all.
struct StageStep {
  std::vector<StageMessage> messages;
  std::optional<Turn> turn;  // after them; none at the end
};

/// What a stage does, in order: one forward, one backward (PipeDream-Flush; Narayanan et al.,
/// arXiv:2006.09503). After a warm-up of as many forwards as there are stages behind this one, each further
/// forward is followed by a backward, so that a stage keeps at most `stages - stage` micro-batches alive.
/// Between two turns it sends what the first made and receives what the second needs; why no stages wait for
/// each other forever is in docs/decisions/0014-pipeline-messages.md.
std::vector<StageStep> stage_steps(int stages, int stage, int64_t micro_batches);

/// How many of a chain's parts each stage takes, in order: the cut whose most expensive stage costs least,
/// with at least one part in each stage. `stages` is at most the number of costs.
std::vector<size_t> cut_chain(const std::vector<int64_t>& costs, size_t stages);

}  // namespace lockstep::parallel
