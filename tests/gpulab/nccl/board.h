#pragma once
// The memory that the ranks of a communicator share. All zero in the beginning; what nobody touches takes no
// memory.
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "nccl/bell.h"

namespace lab::nccl {

constexpr int kMaxRanks = 16;
constexpr std::size_t kPart = std::size_t{1} << 19;   // of a collective, what a rank shows at once
constexpr std::size_t kPiece = std::size_t{1} << 18;  // of a message, what lies between sender and receiver

/// What a rank does, for the others to compare with what they do.
struct Signature {
  int kind = 0, type = 0, reduction = 0, root = 0;
  std::size_t count = 0;
  bool operator==(const Signature&) const = default;
};

/// Who a rank is.
struct Facts {
  pid_t process = 0;
  unsigned long pid_namespace = 0;
  int size = 0;  // that this rank believes in
  char host[256] = {};
  char bus[32] = {};
};

struct Seat {
  std::atomic<int> taken, left;  // left: in good order
  Facts facts;
  int color, key;          // of a split
  Signature signature[2];  // by halves, as the parts
  Bell bell;
};

struct Channel {
  std::atomic<std::uint64_t> written, read;  // pieces
  std::size_t bytes;                         // of this piece
  std::size_t total;                         // of the message that it is of
  int type;
};

struct Board {
  std::atomic<int> attached;
  std::atomic<std::uint64_t> arrivals;  // of the streams, at barriers
  std::atomic<std::uint64_t> talks;     // of the hosts, at theirs
  Bell bell;
  char grown[128];  // the name of the board of a communicator that is grown from this one
  Seat seats[kMaxRanks];
  Channel channels[kMaxRanks][kMaxRanks];         // from, to
  alignas(4096) char parts[kMaxRanks][2][kPart];  // two halves: the next is written while the last is read
  alignas(4096) char pieces[kMaxRanks][kMaxRanks][kPiece];
};
using BoardPtr = std::shared_ptr<Board>;

/// The board of that name, new where nobody has opened it yet; null where there is no memory.
BoardPtr open_board(const std::string& name);
/// For the ranks of one process.
BoardPtr private_board();
/// All have it, or it will never be complete: its name goes, and with its last user its memory.
void forget_board(const std::string& name);

}  // namespace lab::nccl
