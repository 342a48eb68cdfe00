#pragma once
// Groups for tests under mpirun.

#include <ATen/ATen.h>

#include "comm/group.h"
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

/// Pretends that every n ranks are a node of their own, while it lives.
class PretendNodes {
 public:
  explicit PretendNodes(int ranks) {
    ::setenv("LOCKSTEP_TEST_RANKS_PER_NODE", std::to_string(ranks).c_str(), 1);
  }
  ~PretendNodes() { ::unsetenv("LOCKSTEP_TEST_RANKS_PER_NODE"); }
};

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
