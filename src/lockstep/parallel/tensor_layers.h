#pragma once
// Layers of which each rank of a team holds a share, computed and learned together as the whole layer would
// be.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>

#include "lockstep/parallel/team.h"

namespace lockstep {

/// A layer that holds a share of its parameters, under the whole layer's names. The whole layer's initial
/// values are drawn from torch's generator, and a share of them is kept.
class SplitLayer {
 public:
  virtual ~SplitLayer() = default;
  /// The dimension along which a parameter of its own is split; negative where each rank has it whole.
  virtual int64_t split_of(const std::string& parameter) const = 0;
};

/// What ColumnParallelLinear may do otherwise.
struct ColumnParallelOptions {
  bool bias = true;
  bool copy_input = true;      ///< false: the input came through copy_to_group or gather_to_group
  bool gather_output = false;  ///< every rank gets all outputs
};

/// A linear layer whose outputs are shared out: each rank has some rows of the weight. Every rank brings the
/// same input.
class ColumnParallelLinear : public torch::nn::Module, public SplitLayer {
 public:
  /// InputError where the outputs do not split.
  ColumnParallelLinear(int64_t in, int64_t out, const Team& team, ColumnParallelOptions options = {});
  /// [..., in] to this rank's [..., out / ranks].
  at::Tensor forward(const at::Tensor& input);
  int64_t split_of(const std::string&) const override { return 0; }

  at::Tensor weight, bias;

 private:
  Team team_;
  ColumnParallelOptions options_;
};

/// What RowParallelLinear may do otherwise.
struct RowParallelOptions {
  bool bias = true;
  bool input_is_parallel = true;  ///< false: every rank brings the whole input
  bool scatter_tokens = false;    ///< each rank gets its part of the output's dimension 1 (the tokens)
};

/// A linear layer whose inputs are shared out: each rank has some columns of the weight, and the outputs are
/// summed. The bias, which each rank has whole, is added once.
class RowParallelLinear : public torch::nn::Module, public SplitLayer {
 public:
  /// InputError where the inputs do not split.
  RowParallelLinear(int64_t in, int64_t out, const Team& team, RowParallelOptions options = {});
  /// This rank's [..., in / ranks] to the whole [..., out].
  at::Tensor forward(const at::Tensor& input);
  int64_t split_of(const std::string& parameter) const override { return parameter == "weight" ? 1 : -1; }

  at::Tensor weight, bias;

 private:
  Team team_;
  RowParallelOptions options_;
};

// The layers around those that ranks share: a table of tokens' vectors, shared out by rows, and a norm over
// shared-out tokens.

/// An embedding whose rows are shared out: each rank looks up the tokens that it has, and the sum is whole.
class VocabParallelEmbedding : public torch::nn::Module, public SplitLayer {
 public:
  /// InputError where the rows do not split.
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

/// Layer normalisation of this rank's share of the tokens. Weight and bias are whole on each rank, and so
/// are their gradients: the sums over the ranks' tokens.
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

// The seams of layers that ranks share: what passes between them, forward and backward.

// Each takes the same shape on every rank, is collective in both directions, and is free in a team of one.

/// Into split layers: the tensor as it is. Backward sums its gradient over the ranks.
at::Tensor copy_to_group(const at::Tensor& tensor, const Team& team);
/// Out of split layers: the sum over the ranks. Backward hands the gradient on as it is.
at::Tensor reduce_from_group(const at::Tensor& tensor, const Team& team);
/// This rank's part of a tensor that all have. Backward puts the parts of the gradient together.
at::Tensor split_to_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// The ranks' parts put together, for what all ranks do alike. Backward takes this rank's part.
at::Tensor gather_from_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// The ranks' parts put together, into split layers. Backward sums over the ranks and takes this one's part.
at::Tensor gather_to_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// Out of split layers: this rank's part of the sum. Backward puts the parts of the gradient together.
at::Tensor reduce_scatter_from_group(const at::Tensor& tensor, const Team& team, int64_t dim);

/// A rank's share of `count` things, evenly. InputError where that is no whole number of them; `what` names
/// them: "outputs of a linear layer".
int64_t share_of(int64_t count, const Team& team, const std::string& what);

}  // namespace lockstep
