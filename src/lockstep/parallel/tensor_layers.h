#pragma once
// Layers that the ranks of a team share: each rank holds a part, and together they compute the whole layer.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>

#include "lockstep/parallel/team.h"

namespace lockstep {

/// A layer that holds a share of its parameters, under the whole layer's names. It draws the initial values
/// of the whole layer from torch's generator and keeps its share.
class SplitLayer {
 public:
  virtual ~SplitLayer() = default;
  /// The dimension along which one of its parameters is split; negative where each rank has all of it.
  virtual int64_t split_of(const std::string& parameter) const = 0;
};

/// Options of ColumnParallelLinear.
struct ColumnParallelOptions {
  bool bias = true;
  bool copy_input = true;      ///< false: the input came through copy_to_group or gather_to_group
  bool gather_output = false;  ///< every rank gets all outputs
};

/// A linear layer whose outputs are divided: each rank has some rows of the weight. All ranks give the same
/// input.
class ColumnParallelLinear : public torch::nn::Module, public SplitLayer {
 public:
  /// InputError if the outputs cannot be divided evenly.
  ColumnParallelLinear(int64_t in, int64_t out, const Team& team, ColumnParallelOptions options = {});
  /// [..., in] to this rank's [..., out / ranks].
  at::Tensor forward(const at::Tensor& input);
  int64_t split_of(const std::string&) const override { return 0; }

  at::Tensor weight, bias;

 private:
  Team team_;
  ColumnParallelOptions options_;
};

/// Options of RowParallelLinear.
struct RowParallelOptions {
  bool bias = true;
  bool input_is_parallel = true;  ///< false: every rank gives the whole input
  bool scatter_tokens = false;    ///< each rank gets its part of the output's dimension 1 (the tokens)
};

/// A linear layer whose inputs are divided: each rank has some columns of the weight, and the outputs are
/// summed. Each rank has the whole bias; it is added once.
class RowParallelLinear : public torch::nn::Module, public SplitLayer {
 public:
  /// InputError if the inputs cannot be divided evenly.
  RowParallelLinear(int64_t in, int64_t out, const Team& team, RowParallelOptions options = {});
  /// This rank's [..., in / ranks] to the whole [..., out].
  at::Tensor forward(const at::Tensor& input);
  int64_t split_of(const std::string& parameter) const override { return parameter == "weight" ? 1 : -1; }

  at::Tensor weight, bias;

 private:
  Team team_;
  RowParallelOptions options_;
};

/// An embedding whose rows are divided: each rank looks up the tokens that it has, and the ranks sum.
class VocabParallelEmbedding : public torch::nn::Module, public SplitLayer {
 public:
  /// InputError if the rows cannot be divided evenly.
  VocabParallelEmbedding(int64_t count, int64_t width, const Team& team);
  /// Token numbers, the same on every rank, to [..., width]. InputError for a number outside the table.
  at::Tensor forward(const at::Tensor& tokens);
  int64_t split_of(const std::string&) const override { return 0; }

  at::Tensor weight;

 private:
  void check_range(const at::Tensor& tokens) const;

  Team team_;
  int64_t count_, first_;
};

/// Layer normalisation of this rank's share of the tokens. Each rank has the whole weight and bias, and their
/// gradients are the sums over all ranks' tokens.
class SequenceParallelNorm : public torch::nn::Module {
 public:
  SequenceParallelNorm(int64_t width, const Team& team, double eps = 1e-5);
  /// [..., width].
  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight, bias;

 private:
  Team team_;
  double eps_;
};

// What connects layers that ranks share, forward and backward. Each function takes the same shape on every
// rank, is collective in both directions, and does nothing in a team of one.

/// Into split layers: the tensor itself. Backward sums its gradient over the ranks.
at::Tensor copy_to_group(const at::Tensor& tensor, const Team& team);
/// Out of split layers: the sum over the ranks. Backward passes the gradient on.
at::Tensor reduce_from_group(const at::Tensor& tensor, const Team& team);
/// This rank's part of a tensor that all have. Backward concatenates the parts of the gradient.
at::Tensor split_to_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// The ranks' parts concatenated, for what all ranks compute alike. Backward takes this rank's part.
at::Tensor gather_from_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// The ranks' parts concatenated, into split layers. Backward sums over the ranks and takes this rank's part.
at::Tensor gather_to_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// Out of split layers: this rank's part of the sum. Backward concatenates the parts of the gradient.
at::Tensor reduce_scatter_from_group(const at::Tensor& tensor, const Team& team, int64_t dim);

/// `count` divided by the number of ranks. InputError if there is a remainder; `what` names the things, such
/// as "outputs of a linear layer".
int64_t share_of(int64_t count, const Team& team, const std::string& what);

}  // namespace lockstep
