#pragma once
// A communicator: one rank's view of the memory that its ranks share.
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define NCCL_CALL extern "C" __attribute__((visibility("default")))

namespace lab::nccl {

constexpr int kMaxRanks = 16;
constexpr std::size_t kPart = std::size_t{1} << 19;   // of a collective, what a rank shows at once
constexpr std::size_t kPiece = std::size_t{1} << 18;  // of a message, what lies between sender and receiver

/// What goes wrong, by LAB_NCCL_FAULT=NAME:n, in this process' n-th collective.
enum class Fault { none, hang, error, async, kill };

/// Counts this process' collectives, of all communicators, from 1 on.
long next_collective();
bool strikes(Fault fault, long collective);
/// LAB_NCCL_ABORT=hang: ncclCommAbort never returns.
bool abort_hangs();

/// Keeps the text for ncclGetLastError, and returns the error.
ncclResult_t refuse(ncclResult_t error, const std::string& text);
std::string formatted(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// In shared memory: a process that waits for a change sleeps, so that many ranks share few cores.
class Bell {
 public:
  std::uint32_t heard() const { return rings_.load(); }
  void ring();
  /// Until it rings again after `heard`, or for so long.
  void sleep(std::uint32_t heard, std::chrono::milliseconds longest);

 private:
  std::atomic<std::uint32_t> rings_;
  std::atomic<std::int32_t> sleepers_;  // stays too high when a sleeper is killed: costs a call, no more
};

/// What a rank does, for the others to compare with what they do.
struct Signature {
  int kind = 0, type = 0, op = 0, root = 0;
  std::size_t count = 0;
  bool operator==(const Signature&) const = default;
};

struct Seat {
  std::atomic<int> taken;
  char host[256];
  char bus[32];
  Signature signature[2];  // by halves, as the parts
  Bell bell;
};

struct Channel {
  std::atomic<std::uint64_t> written, read;  // pieces
  std::size_t bytes;                         // of this piece
  std::size_t total;                         // of the message that it is of
};

/// All zero in the beginning; what nobody touches takes no memory.
struct Board {
  std::atomic<int> attached;
  std::atomic<std::uint64_t> arrivals;  // of the streams, at barriers
  Bell bell;
  Seat seats[kMaxRanks];
  Channel channels[kMaxRanks][kMaxRanks];         // from, to
  alignas(4096) char parts[kMaxRanks][2][kPart];  // two halves: the next is written while the last is read
  alignas(4096) char pieces[kMaxRanks][kMaxRanks][kPiece];
};

/// One operation at a time, in the order in which the host began them, whatever streams they are on.
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

/// Thrown where an operation waits when its communicator is aborted.
struct Aborted {};

struct Comm {
  int rank = 0, size = 1, device = 0;
  std::shared_ptr<Board> board;
  std::vector<std::vector<int>> hosts;  // the ranks of each, in their order
  Turns turns;
  std::uint64_t parts = 0;  // that were shown in collectives

  Seat& seat(int of) const { return board->seats[of]; }
  Seat& own() const { return seat(rank); }

  void wait(Bell& bell, const std::function<bool()>& ready);
  [[noreturn]] void wait_for_abort();
  /// Of the operations on streams.
  void barrier();

  void abort();
  bool is_aborted() const { return aborted_; }
  /// An asynchronous error; the first one stays.
  void fail(ncclResult_t error, const std::string& text);
  /// What ncclCommGetAsyncError says.
  ncclResult_t state() const { return static_cast<ncclResult_t>(error_.load()); }

 private:
  std::atomic<bool> aborted_{false};
  std::atomic<int> error_{ncclSuccess};
  std::uint64_t barriers_ = 0;
};
using CommPtr = std::shared_ptr<Comm>;

/// Null for a handle that is none, or none any more.
CommPtr find(ncclComm_t handle);
/// With its error kept for ncclGetLastError.
ncclResult_t refuse_handle(const char* call);

}  // namespace lab::nccl
