#pragma once
// Groups for tests under mpirun.

#include <ATen/ATen.h>

#include "lockstep/comm/connect.h"
#include "ranks.h"

namespace lockstep::test {

inline int own_rank() {
  return runtime().job().rank;
}
inline int world() {
  return runtime().job().world;
}

inline ProcessGroup open(const std::string& backend,
                         std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  return comm::connect(runtime(), {.backend = backend, .timeout = timeout});
}

/// The text of what `body` throws, or "".
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::test
