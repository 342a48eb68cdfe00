#pragma once
// While ranks join, libtorch's own log is silent: a failure is said once, by us, and without its call stacks.

namespace lockstep::comm {

/// LOCKSTEP_TRACE=1, or a TORCH_CPP_LOG_LEVEL that somebody chose, lets libtorch speak.
class QuietJoin {
 public:
  QuietJoin();
  ~QuietJoin();
  QuietJoin(const QuietJoin&) = delete;
  QuietJoin& operator=(const QuietJoin&) = delete;

 private:
  int before_;
};

}  // namespace lockstep::comm
