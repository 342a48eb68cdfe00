#pragma once
// Sees gradients arrive that the Reducer lets pass: of a forward around the wrapper, or of a second backward.
// The ranks' parameters would differ from then on, and nothing would say so.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/parallel/module_tensors.h"

namespace lockstep::parallel {

class GradientWatch {
 public:
  /// In a static graph a backward may bring a gradient several times, as often as in the first step.
  GradientWatch(const std::vector<ReducedParameter>& parameters, bool static_graph);
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  /// Before a forward whose backward is exchanged, and where gradients are zeroed. A warning where a
  /// parameter changed with a gradient that was not, as another optimiser than ours does not ask; it is no
  /// error, since whatever else may have changed it.
  void look_for_moves();
  /// After a forward of ours: one backward is expected, exchanged or local. An exchange takes along what is
  /// local and has moved nothing.
  void expect(bool exchanged);
  /// While no_sync() is held whatever arrives is meant to be local.
  void permit_local(bool permitted) { permits_local_ = permitted; }

 private:
  struct Watched {
    ReducedParameter parameter;
    int64_t arrived = 0;  // since the last forward
    int64_t usual = 1;    // arrivals a backward
    at::Tensor sum = {};  // of the parameter's values when its gradient became local
  };
  static void forget(Watched& watched);
  void arrive(Watched& watched);
  void mark(Watched& watched) const;

  std::vector<Watched> watched_;
  std::vector<std::function<void()>> unhook_;
  const bool static_graph_;
  bool expects_ = false;  // a forward of ours was there
  bool permits_local_ = false;
  bool learns_ = false;  // in the first exchanged step of a static graph
  int64_t exchanges_ = 0;
  bool has_warned_ = false;
};

}  // namespace lockstep::parallel
