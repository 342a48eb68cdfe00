#pragma once
// `with torch.autocast(device, dtype)` for a scope.

#include <ATen/autocast_mode.h>

#include <optional>

#include "trainer/config/settings.h"

namespace lockstep::train {

/// The dtype that a precision computes in; nothing for fp32.
std::optional<at::ScalarType> autocast_type(Precision precision);

class Autocast {
 public:
  Autocast(at::DeviceType device, std::optional<at::ScalarType> type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool on_;
  bool was_on_ = false;
  at::ScalarType was_type_ = at::kFloat;
};

}  // namespace lockstep::train
