#pragma once
// `with torch.autocast(device, dtype)` for a scope.

#include <ATen/autocast_mode.h>

#include <optional>

#include "trainer/config/settings.h"

namespace lockstep::train {

/// The dtype that a precision computes in; nothing for fp32.
inline std::optional<at::ScalarType> autocast_type(Precision precision) {
  if (precision == Precision::bf16) return at::kBFloat16;
  if (precision == Precision::fp16) return at::kHalf;
  return std::nullopt;
}

class Autocast {
 public:
  Autocast(at::DeviceType device, std::optional<at::ScalarType> type)
      : device_(device), on_(type.has_value()) {
    if (!on_) return;
    was_on_ = at::autocast::is_autocast_enabled(device_);
    was_type_ = at::autocast::get_autocast_dtype(device_);
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, *type);
    at::autocast::increment_nesting();
  }
  // As torch.autocast.__exit__: the low-precision copies of the weights live as long as the outermost scope.
  ~Autocast() {
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_on_);
    at::autocast::set_autocast_dtype(device_, was_type_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool on_;
  bool was_on_ = false;
  at::ScalarType was_type_ = at::kFloat;
};

}  // namespace lockstep::train
