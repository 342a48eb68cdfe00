#pragma once
// As much of gloo::Context as ProcessGroupGloo.hpp names; objects of it live in libtorch alone.
#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo
