#pragma once
// Dynamic loss scaling for fp16 with the rules of torch.amp.GradScaler.

#include <ATen/core/Tensor.h>

#include <functional>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {

/// Python's parameter names and defaults.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

/// Call scale(loss).backward(); unscale_(optimizer) before clipping, if any; step(optimizer); update(). All
/// ranks skip the same steps, because they check the same all-reduced gradients.
class GradScaler {
 public:
  explicit GradScaler(at::Device device, GradScalerOptions options = {});

  /// The loss to call backward() on.
  at::Tensor scale(const at::Tensor& loss) const;
  /// For ranks with different parameters: `share` replaces `found` by its maximum over the ranks. `found` is
  /// nonzero if a gradient is not finite. Collective.
  void share_with(std::function<void(at::Tensor& found)> share) { share_ = std::move(share); }
  /// Divides the gradients by the scale and notes whether one is not finite.
  void unscale_(Optimizer& optimizer);
  /// Unscales if unscale_() was not called, and steps unless a gradient is not finite. Returns whether it
  /// stepped.
  bool step(Optimizer& optimizer);
  /// Updates the scale after step().
  void update();
  /// The current scale. Waits for the device.
  double current_scale() const;

  /// The state in Python's format.
  Tree state_dict() const;
  /// Loads a state, also one from Python.
  void load_state_dict(const Tree& state);

 private:
  GradScalerOptions options_;
  at::Tensor scale_, growth_tracker_, found_inf_;
  std::function<void(at::Tensor&)> share_;
  bool unscaled_ = false;
};

}  // namespace lockstep
