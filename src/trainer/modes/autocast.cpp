#include "trainer/modes/autocast.h"

namespace lockstep::train {

std::optional<at::ScalarType> autocast_type(Precision precision) {
  if (precision == Precision::bf16) return at::kBFloat16;
  if (precision == Precision::fp16) return at::kHalf;
  return std::nullopt;
}

Autocast::Autocast(at::DeviceType device, std::optional<at::ScalarType> type)
    : device_(device), on_(type.has_value()) {
  if (!on_) return;
  was_on_ = at::autocast::is_autocast_enabled(device_);
  was_type_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::increment_nesting();
}

// As torch.autocast.__exit__: the low-precision copies of the weights live as long as the outermost scope.
Autocast::~Autocast() {
  if (!on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_on_);
  at::autocast::set_autocast_dtype(device_, was_type_);
}

}  // namespace lockstep::train
