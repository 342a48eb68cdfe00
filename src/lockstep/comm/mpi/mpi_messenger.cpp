#include "lockstep/comm/mpi/mpi_messenger.h"

#include <algorithm>

#include "lockstep/comm/mpi/comms.h"

namespace lockstep::comm {
namespace {

constexpr size_t kLargestMessage = 1 << 30;  // MPI counts bytes in an int

// Messages on their way; what an exception leaves behind is given up, as far as MPI can.
class Underway {
 public:
  explicit Underway(std::mutex& mpi) : mpi_(mpi) {}
  ~Underway() {
    const std::lock_guard<std::mutex> guard(mpi_);
    for (auto& [request, peer] : messages_) {
      if (request == mpi::Request::null) continue;
      mpi::calls().cancel(&request);
      mpi::calls().request_free(&request);
    }
  }
  Underway(const Underway&) = delete;
  Underway& operator=(const Underway&) = delete;

  template <class Bytes, class Start>
  void add(Bytes bytes, int peer, Start&& start) {
    const std::lock_guard<std::mutex> guard(mpi_);
    for (size_t at = 0; at < bytes.size(); at += kLargestMessage) {
      messages_.push_back({mpi::Request::null, peer});
      const auto piece = bytes.subspan(at, std::min(kLargestMessage, bytes.size() - at));
      start(piece.data(), static_cast<int>(piece.size()), &messages_.back().request);
    }
  }
  void wait(Patience& patience) {
    for (auto& [request, peer] : messages_) {
      patience.restart();
      while (!is_done(request)) wait_a_turn(patience, request, peer);
    }
  }

 private:
  struct Message {
    mpi::Request request;
    int peer;
  };

  bool is_done(mpi::Request& request) {
    int done = 0;
    const std::lock_guard<std::mutex> guard(mpi_);
    require_success(mpi::calls().test(&request, &done, mpi::kIgnore), "MPI_Test");
    return done != 0;
  }
  void wait_a_turn(Patience& patience, mpi::Request& request, int peer) {
    try {
      patience.turn(peer);
    } catch (const OutOfPatience&) {
      if (!is_done(request)) throw;  // the other may have sent and then ended
    }
  }

  std::mutex& mpi_;
  std::vector<Message> messages_;
};

}  // namespace

void MpiMessenger::transfer(std::span<const Outgoing> out, std::span<const Incoming> in) {
  Underway underway(mpi_);
  for (const auto& [from, bytes] : in) {
    underway.add(bytes, from, [&, from = from](std::byte* data, int count, mpi::Request* request) {
      require_success(mpi::calls().irecv(data, count, mpi::Type::byte, from, tag_, all_, request),
                      "MPI_Irecv");
    });
  }
  for (const auto& [to, bytes] : out) {
    underway.add(bytes, to, [&, to = to](const std::byte* data, int count, mpi::Request* request) {
      require_success(mpi::calls().isend(data, count, mpi::Type::byte, to, tag_, all_, request), "MPI_Isend");
    });
  }
  underway.wait(patience_);
}

}  // namespace lockstep::comm
