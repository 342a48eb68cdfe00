#pragma once
// The way in: join the job, choose the device, share the cores, open the group; leave in the right order.

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/format.h"
#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/options.h"
#include "lockstep/parallel/team.h"

namespace lockstep {

namespace launch {
class Runtime;
}
namespace parallel {
struct Joining;
}

/// This process as a rank of its job; one in a process. Make it first thing in main: with a GPU the CUDA half
/// of libtorch has to come before anything else asks for it.
class Session {
 public:
  /// `gpus`: which of its own GPUs each rank computes on, counted from 0, where a module lies on several:
  /// {0, 1} gives local rank 1 the node's GPUs 2 and 3. The first is the rank's device. Nothing on CPUs.
  explicit Session(const LaunchOptions& options = {}, std::vector<int64_t> gpus = {});
  /// For the program, which learns its options over a runtime that is there already.
  Session(std::unique_ptr<launch::Runtime> runtime, const parallel::Joining& joining);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// From 0 to world() - 1.
  int rank() const;
  /// How many ranks there are.
  int world() const;
  /// Who this rank is, and how that was found out.
  const Job& job() const;
  /// Where this rank computes.
  c10::Device device() const;
  /// How many threads libtorch uses here: this rank's share of the cores.
  int threads() const;
  /// All ranks, for whatever takes a c10d::ProcessGroup.
  const ProcessGroup& group() const;
  /// The small exchanges: sums, texts, errors that all ranks meet alike.
  const Team& team() const;
  /// The ranks that name the same part, in rank order, as a team with a group of its own. `name` tells splits
  /// apart: each call needs another one. Collective.
  Team split(int part, const std::string& name) const;

  /// A line on rank 0's standard output: session.print("Epoch {}", epoch).
  template <class... Args>
  void print(FormatText<Args...> text, const Args&... args) const {
    if (rank() == 0) print_line(vformat(text.text(), {FormatArgument(args)...}));
  }
  /// The mean over everything that every rank has added; collective.
  double all_reduce(const Mean& mean) const;

 private:
  static void print_line(const std::string& line);

  struct State;
  std::unique_ptr<State> state_;
};

/// Runs a program's body: what it throws is said once for the job, no rank is left waiting, and the exit
/// status comes back. `int main() { return lockstep::run([] { ... }); }`
int run(const std::function<void()>& body);

}  // namespace lockstep

namespace lockstep::parallel {

// What the program tells a Session beside its options.

struct Joining {
  LaunchOptions options;
  bool grouped = true;        // false: no process group, each process is alone
  launch::OwnGpus gpus = {};  // of each rank
  int threads = 0;            // of each rank; 0 = its share of the cores
  /// What has to be the same on all ranks. Called once the device is chosen and before libtorch is
  /// touched; an Error of it is thrown on all ranks.
  std::function<comm::Facts(const launch::DeviceChoice&)> facts;
};

}  // namespace lockstep::parallel
