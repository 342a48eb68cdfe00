#pragma once
// What a model is made of, whole or shared among ranks: a model asks here for its layers and knows of no
// ranks.

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/any.h>

#include <memory>
#include <string>

namespace lockstep {

/// A layer as a model holds it: register_module(name, layer.ptr()), then layer.forward(x).
using Layer = torch::nn::AnyModule;

/// Which side of a linear layer ranks may share out.
enum class Split { none, outputs, inputs };

/// Where a linear layer is in its model.
struct LinearPlace {
  Split split = Split::none;
  bool entered = false;  ///< of outputs: what comes in has been through enter()
  bool tokens = false;   ///< of inputs: what goes out is of tokens, dimension 1, which ranks may share out
};

/// What of a tensor that is dropped out a rank may hold a share of.
enum class Shared { nothing, heads, tokens };

/// Whole layers, each drawn from torch's generator as torch::nn draws it. Ranks that share a model override
/// all of it: between a layer split by outputs and the next, split by inputs, a rank then has its share of
/// the width.
class Layers {
 public:
  virtual ~Layers() = default;
  /// Do ranks share these?
  virtual bool shared() const { return false; }

  /// Outputs that are split make a part of the width on each rank, inputs that are split take it.
  virtual Layer linear(int64_t in, int64_t out, LinearPlace place = {}) const;
  /// Token numbers, the same on every rank, to whole vectors.
  virtual Layer embedding(int64_t count, int64_t width) const;
  /// Layer normalisation of tokens.
  virtual Layer norm(int64_t width, double eps) const;

  /// How many of `count` things this rank has. InputError where they do not split; `what` names them.
  virtual int64_t own(int64_t count, const std::string& what) const;
  /// Tokens on their way into layers that are split by outputs and `entered`.
  virtual at::Tensor enter(const at::Tensor& tokens) const { return tokens; }
  /// This rank's share of all tokens, ...
  virtual at::Tensor own_tokens(const at::Tensor& tokens) const { return tokens; }
  /// ... and all of them from the ranks' shares.
  virtual at::Tensor all_tokens(const at::Tensor& tokens) const { return tokens; }
  /// Heads and tokens are dimension 1. What is dropped does not depend on who shares what.
  virtual at::Tensor dropout(const at::Tensor& x, double p, bool training, Shared shared) const;
};

/// While it lives, the models that make_model() makes on this thread are made of these layers; of whole ones
/// otherwise. (A task makes its model by an interface of its own, which says nothing of ranks.)
class LayersGuard {
 public:
  explicit LayersGuard(std::shared_ptr<const Layers> layers);
  ~LayersGuard();
  LayersGuard(const LayersGuard&) = delete;
  LayersGuard& operator=(const LayersGuard&) = delete;

  /// What make_model() hands on.
  static std::shared_ptr<const Layers> current();

 private:
  std::shared_ptr<const Layers> before_;
};
/// Deprecated.
using UseLayers [[deprecated("use LayersGuard")]] = LayersGuard;

}  // namespace lockstep
