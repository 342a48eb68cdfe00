#include "nccl/points.h"

#include <algorithm>
#include <cstring>

#include "lab.h"
#include "nccl/errors.h"
#include "nccl/mismatch.h"
#include "nccl/numbers.h"
#include "nccl/settings.h"

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
  bool has_moved_all() const { return done_ == point_.bytes; }
  bool is_over() const {
    if (!has_moved_all()) return false;
    return !point_.sends || !settings().sends_wait_for_receipt || channel_.read >= last_piece_;
  }
  /// One piece, where the channel allows it.
  bool move() {
    if (has_moved_all()) return false;
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
    channel_.type = point_.type;
    std::memcpy(piece_, point_.data + done_, channel_.bytes);
    done_ += channel_.bytes;
    last_piece_ = ++channel_.written;
  }
  void read() {
    if (done_ == 0) compare();
    std::memcpy(point_.data + done_, piece_, channel_.bytes);
    done_ += channel_.bytes;
    ++channel_.read;
  }
  void compare() const {
    const auto sent = name_of(static_cast<ncclDataType_t>(channel_.type)), wanted = name_of(point_.type);
    if (channel_.total != point_.bytes)
      hang_over(comm_, formatted("rank %d of %s receives %zu bytes (%s) from rank %d, which sends %zu (%s)",
                                 comm_.rank, comm_.name.c_str(), point_.bytes, wanted, point_.peer,
                                 channel_.total, sent));
    if (channel_.type != point_.type)
      say("NCCL: rank %d of %s receives %s from rank %d, which sends %s", comm_.rank, comm_.name.c_str(),
          wanted, point_.peer, sent);
  }

  Comm& comm_;
  Point point_;
  Channel& channel_;
  char* piece_;
  std::size_t done_ = 0;
  std::uint64_t last_piece_ = 0;
};

class All {
 public:
  All(Comm& comm, const std::vector<Point>& points) {
    for (const auto& point : points) moving_.emplace_back(comm, point);
  }
  bool advance() {
    while (move_some()) {
    }
    return std::all_of(moving_.begin(), moving_.end(), [](const Moving& one) { return one.is_over(); });
  }

 private:
  bool move_some() {
    bool blocked[2][kMaxRanks] = {};
    bool moved = false;
    for (auto& one : moving_) {
      bool& before = blocked[one.point().sends][one.point().peer];
      if (!before) moved = one.move() || moved;
      before = before || !one.has_moved_all();
    }
    return moved;
  }

  std::vector<Moving> moving_;
};

}  // namespace

void run(Comm& comm, const std::vector<Point>& points) {
  All all(comm, points);
  comm.wait(comm.own().bell, [&] { return all.advance(); });
}

}  // namespace lab::nccl
