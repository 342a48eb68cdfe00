#pragma once
// The line of ranks along which a pipeline's activations and gradients travel, from stage to stage.

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

/// Shape, dtype and strides go ahead of an output once for each shape of what the batch began with, which
/// every stage knows: a model whose outputs' shapes depend on more than that is refused. They go from CPU to
/// CPU, whatever carries the tensors. A gradient has the form of the output that it is of.
class StageLine {
 public:
  using Sizes = std::vector<int64_t>;

  /// A tensor on its way, or the place for one that comes.
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

  // What travels; `batch` is what the micro-batch looked like when it came in.

  /// To the next stage.
  Parcel output(const at::Tensor& tensor, const Sizes& batch);
  /// From the stage before, which is waited for where the form is not known yet; the tensor asks for a
  /// gradient where the sender's does.
  Parcel input(const Sizes& batch);
  /// Back to the stage before, of what came from there; zeros where it has no gradient.
  Parcel gradient_of(const at::Tensor& input) const;
  /// From the next stage, of an output that went there.
  Parcel gradient(const Sizes& batch) const;

  /// As one group, where the backend knows groups. What is received is there for whatever comes next on this
  /// device; what is sent is kept until it has gone.
  void exchange(const std::vector<Parcel>& parcels);
  /// Returns when all that was sent has gone; a batch ends with it.
  void flush() { release(0); }
  /// The last stage's tensor on every stage.
  at::Tensor from_last(const at::Tensor& mine, const Sizes& batch);

 private:
  /// What a receiver has to know before the bytes come.
  struct Form {
    at::ScalarType dtype;
    bool needs_gradient;
    Sizes sizes, strides;
    bool operator==(const Form&) const = default;
    std::string text() const;
  };
  enum class What : int { output = 1, result = 2 };
  using Key = std::tuple<What, bool, Sizes>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct Posted {
    WorkPtr work;
    std::vector<at::Tensor> tensors;
    bool receives;
  };
  static Form form_of(const at::Tensor& tensor);
  static at::Tensor packed(const Form& form);
  static Form unpacked(const at::Tensor& header);
  static at::Tensor dense(const at::Tensor& tensor);
  at::Tensor empty(const Form& form) const;
  static Key key(What what, const Sizes& batch);
  void connect();
  WorkPtr post(const Parcel& parcel) const;
  std::vector<Posted> post_all(const std::vector<Parcel>& parcels) const;
  size_t unanswered() const;
  void release(size_t kept);

  Team line_;
  bool groups_;  // does the backend of the tensors know groups?
  std::map<Key, Form> sent_forms_, known_forms_;
  std::deque<Posted> sent_;
};

/// A stage's work on a micro-batch.
struct Turn {
  bool forward;  // else backward
  int64_t micro_batch;

  bool operator==(const Turn&) const = default;
};

/// A micro-batch on its way to a neighbour or from one: an output forward, a gradient back.
struct StageMessage {
  bool sends;  // else it is received
  bool forward;
  int64_t micro_batch;
  int peer;  // the neighbour's stage

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
