#pragma once
// The layers of a model: a model creates its layers through this interface, so the same code works if they
// are split over ranks.

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/any.h>

#include <memory>
#include <string>

namespace lockstep {

/// A layer of a model: register_module(name, layer.ptr()), then layer.forward(x).
using Layer = torch::nn::AnyModule;

/// The dimension of a linear layer that may be split over ranks.
enum class Split { none, outputs, inputs };

/// Where a linear layer is in its model.
struct LinearPlace {
  Split split = Split::none;
  bool entered = false;  ///< for Split::outputs: the input is a result of enter()
  bool tokens = false;   ///< for Split::inputs: the output's dimension 1 is tokens and may be split
};

/// The dimension of dropout's input that may be split over ranks.
enum class Shared { nothing, heads, tokens };

/// Layers that are not split, initialized like torch::nn's from torch's generator. An implementation for
/// split layers overrides every function: between a layer with split outputs and the next one, with split
/// inputs, each rank has its part of the width.
class Layers {
 public:
  virtual ~Layers() = default;
  /// Whether layers are split over ranks.
  virtual bool shared() const { return false; }

  /// A linear layer. With split outputs a rank computes its part of the width; split inputs take that part.
  virtual Layer linear(int64_t in, int64_t out, LinearPlace place = {}) const;
  /// Maps token ids, which are the same on every rank, to full vectors.
  virtual Layer embedding(int64_t count, int64_t width) const;
  /// Layer normalization of tokens.
  virtual Layer norm(int64_t width, double eps) const;

  /// This rank's part of `count`. Throws InputError, which names `what`, if `count` cannot be divided evenly.
  virtual int64_t own(int64_t count, const std::string& what) const;
  /// Prepares tokens as the input of layers with split outputs and `entered`.
  virtual at::Tensor enter(const at::Tensor& tokens) const { return tokens; }
  /// Returns this rank's part of all tokens.
  virtual at::Tensor own_tokens(const at::Tensor& tokens) const { return tokens; }
  /// Returns all tokens, given each rank's part.
  virtual at::Tensor all_tokens(const at::Tensor& tokens) const { return tokens; }
  /// Dropout. Heads and tokens are dimension 1. The mask does not depend on how the tensor is split.
  virtual at::Tensor dropout(const at::Tensor& x, double p, bool training, Shared shared) const;
};

/// While this guard exists, make_model() on this thread creates models from these layers. A guard, because a
/// task's interface for creating its model has no argument for layers.
class LayersGuard {
 public:
  explicit LayersGuard(std::shared_ptr<const Layers> layers);
  ~LayersGuard();
  LayersGuard(LayersGuard&&) = delete;

  /// The layers that make_model() passes to models.
  static std::shared_ptr<const Layers> current();

 private:
  std::shared_ptr<const Layers> before_;
};
/// Deprecated.
using UseLayers [[deprecated("use LayersGuard")]] = LayersGuard;

}  // namespace lockstep
