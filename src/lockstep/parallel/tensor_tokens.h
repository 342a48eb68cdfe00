#pragma once
// The layers around those that ranks share: a table of tokens' vectors, shared out by rows, and a norm over
// shared-out tokens.

#include <torch/nn/module.h>

#include <string>

#include "lockstep/parallel/team.h"
#include "lockstep/parallel/tensor_layers.h"

namespace lockstep {

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

}  // namespace lockstep
