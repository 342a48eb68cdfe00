#pragma once
// A library user's way in: join the job, choose the device, open the group; leave in the right order.

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <string>

#include "lockstep/base/format.h"
#include "lockstep/launch/runtime.h"
#include "lockstep/parallel/exchange.h"

namespace lockstep {

/// What a Session opens; the defaults suit mpirun, srun and torchrun alike.
struct SessionOptions {
  std::string launcher = "auto";  // auto, or what `lockstep whoami` calls it; none = alone
  std::string backend = "auto";   // auto | nccl | gloo | mpi
  std::string device = "auto";    // auto | cpu | cuda
  std::chrono::milliseconds join_timeout{60'000};
  std::chrono::milliseconds timeout{600'000};
};

/// This process as a rank of its job. Make it first thing in main: with a GPU the CUDA half of libtorch has
/// to come before anything else asks for it.
class Session {
 public:
  explicit Session(const SessionOptions& options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return runtime_.job().rank; }
  int world() const { return runtime_.job().world; }
  const Job& job() const { return runtime_.job(); }
  const launch::Runtime& runtime() const { return runtime_; }
  c10::Device device() const { return device_; }
  const ProcessGroup& group() const { return group_; }
  /// So that ddp(model, session) reads well.
  operator const ProcessGroup&() const { return group_; }  // NOLINT(google-explicit-constructor)

  /// A line on rank 0's standard output: session.print("Epoch {}", epoch).
  template <class... Args>
  void print(fmt::format_string<Args...> text, Args&&... args) const {
    if (rank() == 0) print_line(format(text, std::forward<Args>(args)...));
  }
  /// The mean over all ranks; collective.
  double all_reduce(const Mean& mean) const { return all_reduce_mean(mean, group_); }

 private:
  static void print_line(const std::string& line);

  launch::Runtime runtime_;
  c10::Device device_;
  ProcessGroup group_;
};

/// Runs a program's body: what it throws is said once for the job, no rank is left waiting, and the exit
/// status comes back. `int main() { return lockstep::run([] { ... }); }`
int run(const std::function<void()>& body);

}  // namespace lockstep
