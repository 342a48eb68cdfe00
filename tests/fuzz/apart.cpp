#include "fuzz/apart.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

#include "fuzz/fenced.h"
#include "lockstep/base/format.h"

namespace lockstep::fuzz {
namespace {

constexpr unsigned kMostWait = 60;  // seconds on the wall
enum Status { kWell = 0, kException = 7, kForeign = 8 };

class Silence : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void bound_self(const ApartLimits& limits) {
  const auto seconds = static_cast<rlim_t>(limits.seconds);
  const rlimit time{.rlim_cur = seconds, .rlim_max = seconds + 1};
  ::setrlimit(RLIMIT_CPU, &time);
  ::alarm(kMostWait);
  fence_tensors(limits.tensor_bytes);
}

void be_quiet() {
  static Silence silence;
  c10::WarningUtils::set_warning_handler(&silence);
}

int outcome_of(const std::function<void()>& work) {
  try {
    work();
    return kWell;
  } catch (const std::exception&) {
    return kException;
  } catch (...) {
    return kForeign;
  }
}

Ended ended(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == kWell) return Ended::well;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kException) return Ended::by_exception;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) return Ended::by_limit;
  // the least integer divided by -1, in libtorch's kernels as in C++: it ends a process, and touches nothing
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGFPE) return Ended::by_division;
  throw std::runtime_error(WIFSIGNALED(status) ? format("signal {} ended the run", WTERMSIG(status))
                                               : format("the run ended with status {}", WEXITSTATUS(status)));
}

}  // namespace

Ended run_apart(const std::function<void()>& work, const ApartLimits& limits) {
  at::set_num_threads(1);  // a fork has no others
  std::fflush(nullptr);
  const auto child = ::fork();
  if (child < 0) throw std::runtime_error("no fork");
  if (child == 0) {
    bound_self(limits);
    be_quiet();
    ::_exit(outcome_of(work));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return ended(status);
}

}  // namespace lockstep::fuzz
