#pragma once
// The line of ranks along which a pipeline's activations and gradients travel, from stage to stage.

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <deque>
#include <map>
#include <vector>

#include "lockstep/parallel/team.h"

namespace lockstep::parallel {

/// Shapes, dtypes and strides go ahead of a tensor once for each shape of what the batch began with, which
/// every stage knows: a model whose outputs' shapes depend on more than that is refused.
class StageLine {
 public:
  using Sizes = std::vector<int64_t>;

  /// The ranks of one copy of the model, by stage.
  explicit StageLine(Team line) : line_(std::move(line)) {}

  int stage() const { return line_.rank(); }
  int stages() const { return line_.world(); }
  bool is_first() const { return line_.first(); }
  bool is_last() const { return stage() + 1 == stages(); }
  const Team& team() const { return line_; }

  /// To the next stage, without waiting; `batch` is what the micro-batch looked like when it came in.
  void send_output(const at::Tensor& output, const Sizes& batch);
  /// From the stage before; it asks for a gradient where the sender's does.
  at::Tensor receive_input(const Sizes& batch);
  /// Back to the stage before.
  void send_gradient(const at::Tensor& gradient, const Sizes& batch);
  at::Tensor receive_gradient(const Sizes& batch);
  /// Returns when all that was sent has come; a batch ends with it.
  void flush();
  /// The last stage's tensor on every stage.
  at::Tensor from_last(const at::Tensor& mine, const Sizes& batch);

 private:
  /// What a receiver has to know before the bytes come.
  struct Form {
    at::ScalarType dtype;
    bool needs_gradient;
    Sizes sizes, strides;
    bool operator==(const Form&) const = default;
  };
  enum class Way : int { output = 1, gradient = 2, result = 3 };
  using Key = std::tuple<Way, bool, Sizes>;
  struct Sent {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor tensor;
  };
  static Form form_of(const at::Tensor& tensor);
  static at::Tensor packed(const Form& form);
  static Form unpacked(const at::Tensor& header);
  static at::Tensor dense(const at::Tensor& tensor);
  at::Tensor empty(const Form& form) const;
  Key key(Way way, const Sizes& batch) const;
  void send(int to, Way way, const at::Tensor& tensor, const Sizes& batch);
  at::Tensor receive(int from, Way way, const Sizes& batch);
  void post(int to, Way way, const at::Tensor& flat);
  size_t unanswered() const;
  void release(Way way, size_t kept);

  Team line_;
  std::map<Key, Form> sent_forms_, known_forms_;
  std::map<Way, std::deque<Sent>> sent_;
};

}  // namespace lockstep::parallel
