#pragma once
// Layers that are split over the ranks of a team: each rank has a part, and together they compute the layer.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>

#include "lockstep/parallel/team.h"

namespace lockstep {

/// A layer with a part of its parameters, under the full layer's names. It computes the full layer's initial
/// values from torch's generator and keeps its part.
class SplitLayer {
 public:
  virtual ~SplitLayer() = default;
  /// The dimension along which a parameter is split; negative if each rank has all of it.
  virtual int64_t split_of(const std::string& parameter) const = 0;
};

/// Options of ColumnParallelLinear.
struct ColumnParallelOptions {
  bool bias = true;
  bool copy_input = true;      ///< false: the input is from copy_to_group or gather_to_group
  bool gather_output = false;  ///< every rank gets all outputs
};

/// A linear layer with split outputs: each rank has some rows of the weight. The input must be the same on
/// all ranks.
class ColumnParallelLinear : public torch::nn::Module, public SplitLayer {
 public:
  /// Throws InputError if the outputs cannot be divided evenly.
  ColumnParallelLinear(int64_t in, int64_t out, const Team& team, ColumnParallelOptions options = {});
  /// Maps [..., in] to this rank's [..., out / ranks].
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
  bool input_is_parallel = true;  ///< false: every rank passes the whole input
  bool scatter_tokens = false;    ///< each rank gets its part of the output's dimension 1 (the tokens)
};

/// A linear layer with split inputs: each rank has some columns of the weight, and the outputs are summed.
/// Each rank has the whole bias; it is added once.
class RowParallelLinear : public torch::nn::Module, public SplitLayer {
 public:
  /// Throws InputError if the inputs cannot be divided evenly.
  RowParallelLinear(int64_t in, int64_t out, const Team& team, RowParallelOptions options = {});
  /// Maps this rank's [..., in / ranks] to the whole [..., out].
  at::Tensor forward(const at::Tensor& input);
  int64_t split_of(const std::string& parameter) const override { return parameter == "weight" ? 1 : -1; }

  at::Tensor weight, bias;

 private:
  Team team_;
  RowParallelOptions options_;
};

/// An embedding with split rows: each rank looks up the tokens that it has, and the ranks sum.
class VocabParallelEmbedding : public torch::nn::Module, public SplitLayer {
 public:
  /// Throws InputError if the rows cannot be divided evenly.
  VocabParallelEmbedding(int64_t count, int64_t width, const Team& team);
  /// Maps token ids, the same on every rank, to [..., width]. Throws InputError for an unknown id.
  at::Tensor forward(const at::Tensor& tokens);
  int64_t split_of(const std::string&) const override { return 0; }

  at::Tensor weight;

 private:
  void check_range(const at::Tensor& tokens) const;

  Team team_;
  int64_t count_, first_;
};

/// Layer normalization of this rank's share of the tokens. Each rank has the whole weight and bias, and their
/// gradients are the sums over all ranks' tokens.
class SequenceParallelNorm : public torch::nn::Module {
 public:
  SequenceParallelNorm(int64_t width, const Team& team, double eps = 1e-5);
  /// Takes and returns [..., width].
  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight, bias;

 private:
  Team team_;
  double eps_;
};

// What connects layers that ranks share, forward and backward. Each function takes the same shape on every
// rank, is collective in both directions, and does nothing in a team of one.

/// Use before split layers. Returns the tensor unchanged; backward sums its gradient over the ranks.
at::Tensor copy_to_group(const at::Tensor& tensor, const Team& team);
/// Use after split layers. Returns the sum over the ranks; backward passes the gradient on.
at::Tensor reduce_from_group(const at::Tensor& tensor, const Team& team);
/// Returns this rank's part of a tensor that all have. Backward concatenates the parts of the gradient.
at::Tensor split_to_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// Concatenates the ranks' parts for an identical computation on all ranks. Backward takes this rank's part.
at::Tensor gather_from_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// For split layers: concatenates the ranks' parts. Backward sums over ranks and takes this rank's part.
at::Tensor gather_to_group(const at::Tensor& tensor, const Team& team, int64_t dim);
/// Use after split layers. Returns this rank's part of the sum. Backward concatenates the gradient's parts.
at::Tensor reduce_scatter_from_group(const at::Tensor& tensor, const Team& team, int64_t dim);

/// Returns `count` divided by the number of ranks. Throws InputError if there is a remainder; `what` names
/// the things, such as "outputs of a linear layer".
int64_t share_of(int64_t count, const Team& team, const std::string& what);

}  // namespace lockstep
