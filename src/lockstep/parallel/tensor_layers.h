#pragma once
// Layers of which each rank of a team holds a share, computed and learned together as the whole layer would
// be.

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

}  // namespace lockstep
