// The operators of the Python module. Groups are TorchScript classes, so this library needs no symbol of
// Python, and one binary fits every Python version that its torch supports.

#include <torch/library.h>

#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/launch/process/leave.h"

namespace lockstep::python {
namespace {

// Python prints only the text of an exception, so it includes the place and the hint.
void add_shared(const ProcessGroup& group, const std::vector<int64_t>& ranks_in_job, int64_t timeout_ms) {
  const std::chrono::milliseconds timeout(timeout_ms);
  try {
    comm::add_shared(group, ranks_in_job, {.join_timeout = timeout, .timeout = timeout});
  } catch (const Error& error) {
    throw std::runtime_error(describe(error));
  }
}

void announce_end(const std::string& what) {
  launch::announce_end(what);
}

TORCH_LIBRARY(lockstep_ddp, library) {
  library.def("add_shared", add_shared);
  library.def("announce_end", announce_end);
}

}  // namespace
}  // namespace lockstep::python
