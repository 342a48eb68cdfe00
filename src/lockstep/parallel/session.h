#pragma once
// Session: joins the job, chooses the device, divides the cores, creates the process group, and ends in the
// right order.

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/format.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/options.h"
#include "lockstep/parallel/team.h"

namespace lockstep {

namespace launch {
class Runtime;
struct DeviceChoice;
}  // namespace launch
namespace parallel {
struct SessionSetup;
}

/// This process as a rank of its job; one per process. Create it first in main: with a GPU it loads the CUDA
/// plug-in, which must happen before anything else uses libtorch.
class Session {
 public:
  /// `gpus`: for a module on several GPUs, the indices of a rank's own GPUs: {0, 1} gives local rank 1 the
  /// node's GPUs 2 and 3. The first is the rank's device. Ignored on CPUs.
  explicit Session(const LaunchOptions& options = {}, std::vector<int64_t> gpus = {});
  /// For `lockstep` itself, which reads its options after the runtime has started.
  Session(std::unique_ptr<launch::Runtime> runtime, const parallel::SessionSetup& setup);
  ~Session();
  Session(Session&&) = delete;

  /// From 0 to world() - 1.
  int rank() const { return team().rank(); }
  /// How many ranks there are.
  int world() const { return team().world(); }
  /// This rank's place in its job, and how it was detected.
  const Job& job() const { return team().job(); }
  /// The device of this rank.
  c10::Device device() const { return team().device(); }
  /// How many threads libtorch uses here: this rank's share of the cores.
  int threads() const;
  /// The process group of all ranks, for any API that takes a c10d::ProcessGroup.
  const ProcessGroup& group() const { return team().group(); }
  /// The team of all ranks, for small exchanges: sums, strings, and errors that all ranks throw.
  const Team& team() const;
  /// Returns the ranks that pass the same `part`, in rank order, as a team with its own group. Each call
  /// needs a different `name`. Collective.
  Team split(int part, const std::string& name) const;

  /// Prints a line on rank 0's standard output: session.print("Epoch {}", epoch).
  template <class... Args>
  void print(FormatText<Args...> text, const Args&... args) const {
    if (rank() == 0) print_line(vformat(text.text(), {FormatArgument(args)...}));
  }
  /// The mean of all values that all ranks have added. Collective.
  double all_reduce(const Mean& mean) const;
  /// Sums the tensor over the ranks, in place; collective.
  void all_reduce(const at::Tensor& tensor) const;

 private:
  static void print_line(const std::string& line);

  struct State;
  std::unique_ptr<State> state_;
};

/// Runs a program's body and returns the exit status. Prints an exception once for the job; other ranks do
/// not keep waiting. `int main() { return lockstep::run([] { ... }); }`
int run(const std::function<void()>& body);

}  // namespace lockstep

namespace lockstep::parallel {

// What the program gives a Session besides its options.

struct SessionSetup {
  LaunchOptions options;
  bool grouped = true;                  // false: no process group
  std::vector<std::int64_t> gpus = {};  // of each rank
  int threads = 0;                      // of each rank; 0 = its share of the cores
  /// What must be the same on all ranks. Called after the device is chosen and before libtorch is used; all
  /// ranks throw an Error that it throws.
  std::function<std::vector<std::pair<std::string, std::string>>(const launch::DeviceChoice&)> facts;
};

}  // namespace lockstep::parallel
