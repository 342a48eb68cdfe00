#pragma once
// A communicator: one rank's view of the board that it shares with the others.
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nccl/board.h"
#include "nccl/turns.h"

namespace lab::nccl {

/// Thrown where an operation waits when its communicator is aborted or revoked.
struct Aborted {};

/// The ranks of each host, in their order; the hosts in that of their first ranks.
using Hosts = std::vector<std::vector<int>>;

/// The factor of a reduction, in its type: known, or in device memory until the operation runs.
struct Scalar {
  std::uint64_t bits = 0;
  const void* on_device = nullptr;
};

struct Comm {
  std::string name;
  int rank = 0, size = 1, device = 0;
  bool blocking = true;
  BoardPtr board;  // by set_board()
  Hosts hosts;
  Turns turns;
  std::uint64_t parts = 0;  // that were shown in collectives
  int children = 0;         // splits and shrinks
  std::atomic<bool> suspended{false}, revoked{false};
  std::atomic<int> progress{ncclSuccess};  // of what goes on in the background

  std::mutex scalars_mutex;
  std::map<int, Scalar> scalars;
  int next_scalar = ncclNumOps;

  Seat& seat(int of) const { return board->seats[of]; }
  Seat& own() const { return seat(rank); }
  void set_board(BoardPtr opened);

  enum class Waiter { stream, host };  // a host may still wait when its communicator is revoked
  void wait(Bell& bell, const std::function<bool()>& ready, Waiter waiter = Waiter::stream);
  [[noreturn]] void wait_for_abort();
  /// Of the operations on streams.
  void barrier();
  /// Of the calls that all hosts make.
  void talk();

  void abort();
  void revoke();
  bool is_aborted() const { return aborted_; }
  /// An asynchronous error; the first one stays.
  void fail(ncclResult_t error, const std::string& text);
  /// What ncclCommGetAsyncError says.
  ncclResult_t state();

 private:
  bool stopped(Waiter waiter) const { return aborted_ || (waiter == Waiter::stream && revoked); }
  void wake();
  void look_for_dead();

  std::atomic<bool> aborted_{false};
  std::atomic<int> error_{ncclSuccess};
  std::atomic<std::int64_t> looked_at_{0};
  std::uint64_t barriers_ = 0, talks_ = 0;
  std::mutex board_mutex_;
};
using CommPtr = std::shared_ptr<Comm>;

}  // namespace lab::nccl
