#include <algorithm>
#include <cstring>

#include "nccl/operations.h"

namespace lab::nccl {
namespace {

class Moving {
 public:
  Moving(Comm& comm, const Point& point)
      : comm_(comm),
        point_(point),
        channel_(point.sends ? comm.board->channels[comm.rank][point.peer]
                             : comm.board->channels[point.peer][comm.rank]),
        piece_(point.sends ? comm.board->pieces[comm.rank][point.peer]
                           : comm.board->pieces[point.peer][comm.rank]) {}

  const Point& point() const { return point_; }
  bool is_over() const { return done_ == point_.bytes; }
  /// One piece, where the channel allows it.
  bool move() {
    if (is_over()) return false;
    const bool is_empty = channel_.written == channel_.read;
    if (is_empty != point_.sends) return false;
    point_.sends ? write() : read();
    comm_.seat(point_.peer).bell.ring();
    return true;
  }

 private:
  void write() {
    channel_.bytes = std::min(kPiece, point_.bytes - done_);
    channel_.total = point_.bytes;
    std::memcpy(piece_, point_.data + done_, channel_.bytes);
    done_ += channel_.bytes;
    ++channel_.written;
  }
  void read() {
    if (channel_.total != point_.bytes)
      hang_over(comm_, formatted("rank %d receives %zu bytes from rank %d, which sends %zu", comm_.rank,
                                 point_.bytes, point_.peer, channel_.total));
    std::memcpy(point_.data + done_, piece_, channel_.bytes);
    done_ += channel_.bytes;
    ++channel_.read;
  }

  Comm& comm_;
  Point point_;
  Channel& channel_;
  char* piece_;
  std::size_t done_ = 0;
};

// Of one pair in one direction a message waits until the one before it is over.
bool move_some(std::vector<Moving>& all) {
  bool blocked[2][kMaxRanks] = {};
  bool moved = false;
  for (auto& one : all) {
    bool& before = blocked[one.point().sends][one.point().peer];
    if (!before) moved = one.move() || moved;
    before = before || !one.is_over();
  }
  return moved;
}

}  // namespace

void run(Comm& comm, const std::vector<Point>& points) {
  std::vector<Moving> all;
  for (const auto& point : points) all.emplace_back(comm, point);
  comm.wait(comm.own().bell, [&] {
    while (move_some(all)) {
    }
    return std::all_of(all.begin(), all.end(), [](const Moving& one) { return one.is_over(); });
  });
}

}  // namespace lab::nccl
