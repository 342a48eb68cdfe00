#pragma once
// ProcessGroupGloo.hpp holds these through pointers alone.
#include <memory>

namespace gloo::transport {
class Device;
class UnboundBuffer;
}  // namespace gloo::transport
