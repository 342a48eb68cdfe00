#pragma once
// Dynamic loss scaling for fp16 by the rules of torch.amp.GradScaler.

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

/// scale(loss).backward(); unscale_(optimizer) if gradients are clipped; step(optimizer); update(). All ranks
/// skip the same steps, because they check the same all-reduced gradients.
class GradScaler {
 public:
  explicit GradScaler(at::Device device, GradScalerOptions options = {});

  /// The loss to call backward() on.
  at::Tensor scale(const at::Tensor& loss) const;
  /// For ranks with different parameters: `share` replaces `found` (not 0 if a gradient was not finite) by
  /// the largest of all ranks. Collective.
  void share_with(std::function<void(at::Tensor& found)> share) { share_ = std::move(share); }
  /// Divides the gradients by the scale and notes whether one is not finite.
  void unscale_(Optimizer& optimizer);
  /// Unscales if that has not been done, and steps unless a gradient was not finite. Returns whether it
  /// stepped.
  bool step(Optimizer& optimizer);
  /// Updates the scale after step().
  void update();
  /// Waits for the device.
  double current_scale() const;

  /// As Python's.
  Tree state_dict() const;
  /// Takes Python's, too.
  void load_state_dict(const Tree& state);

 private:
  GradScalerOptions options_;
  at::Tensor scale_, growth_tracker_, found_inf_;
  std::function<void(at::Tensor&)> share_;
  bool unscaled_ = false;
};

}  // namespace lockstep
