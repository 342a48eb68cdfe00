#pragma once
// One operation of a communicator at a time, in the order in which the host began them, whatever streams they
// are on.
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

namespace lab::nccl {

class Turns {
 public:
  /// A place in the row. Each one that was taken must be given back, once, run or not.
  std::uint64_t take();
  void give_back(std::uint64_t turn);
  /// False once stopped: then nothing may run.
  bool begin(std::uint64_t turn);
  /// For an operation of a graph, which the host did not begin: as soon as none runs.
  bool begin_between();
  void end();

  void stop();
  /// Until none runs.
  void wait_quiet();
  /// Until none is left, or stopped.
  void wait_empty();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t taken_ = 0, next_ = 0;
  std::set<std::uint64_t> back_;  // later ones that came back first
  bool runs_ = false, stopped_ = false;
};

}  // namespace lab::nccl
