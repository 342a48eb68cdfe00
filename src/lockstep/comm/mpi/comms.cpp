#include "lockstep/comm/mpi/comms.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/comm/shm/bounded_wait.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {
namespace {

constexpr size_t kLargestMessage = 1 << 30;  // MPI counts bytes as int

// Messages under way. After an exception it cancels the rest, as far as MPI can.
class PendingMessages {
 public:
  explicit PendingMessages(std::mutex& mpi) : mpi_(mpi) {}
  ~PendingMessages() {
    const std::lock_guard<std::mutex> guard(mpi_);
    for (auto& [request, peer] : messages_) {
      if (request == mpi::Request::null) continue;
      mpi::calls().cancel(&request);
      mpi::calls().request_free(&request);
    }
  }
  PendingMessages(PendingMessages&&) = delete;

  template <class Bytes, class Start>
  void add(Bytes bytes, int peer, Start&& start) {
    const std::lock_guard<std::mutex> guard(mpi_);
    for (size_t at = 0; at < bytes.size(); at += kLargestMessage) {
      messages_.push_back({mpi::Request::null, peer});
      const auto piece = bytes.subspan(at, std::min(kLargestMessage, bytes.size() - at));
      start(piece.data(), static_cast<int>(piece.size()), &messages_.back().request);
    }
  }
  void wait(BoundedWait& wait) {
    for (auto& [request, peer] : messages_) {
      wait.restart();
      while (!is_done(request)) wait_a_turn(wait, request, peer);
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
  void wait_a_turn(BoundedWait& wait, mpi::Request& request, int peer) {
    try {
      wait.turn(peer);
    } catch (const WaitExpired&) {
      if (!is_done(request)) throw;  // the other rank may have sent and then ended
    }
  }

  std::mutex& mpi_;
  std::vector<Message> messages_;
};

}  // namespace

void MpiMessenger::transfer(std::span<const Outgoing> out, std::span<const Incoming> in) {
  PendingMessages pending(mpi_.mutex);
  for (const auto& [from, bytes] : in) {
    pending.add(bytes, from, [&, from = from](std::byte* data, int count, mpi::Request* request) {
      require_success(mpi::calls().irecv(data, count, mpi::Type::byte, from, tag_, mpi_.comms.all, request),
                      "MPI_Irecv");
    });
  }
  for (const auto& [to, bytes] : out) {
    pending.add(bytes, to, [&, to = to](const std::byte* data, int count, mpi::Request* request) {
      require_success(mpi::calls().isend(data, count, mpi::Type::byte, to, tag_, mpi_.comms.all, request),
                      "MPI_Isend");
    });
  }
  pending.wait(wait_);
}

namespace {

int rank_in(mpi::Comm comm) {
  int rank = 0;
  launch::check_mpi(mpi::calls().comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

// For each rank the first rank of its node.
std::vector<int> find_first_ranks(mpi::Comm all) {
  mpi::Comm node = mpi::Comm::null;
  launch::check_mpi(mpi::calls().comm_split_type(all, mpi::kShared, 0, mpi::Info::null, &node),
                    "MPI_Comm_split_type");
  int first = rank_in(all), size = 0;
  launch::check_mpi(mpi::calls().bcast(&first, 1, mpi::Type::int32, 0, node), "MPI_Bcast");
  launch::check_mpi(mpi::calls().comm_size(all, &size), "MPI_Comm_size");
  std::vector<int> firsts(static_cast<size_t>(size));
  launch::check_mpi(
      mpi::calls().allgather(&first, 1, mpi::Type::int32, firsts.data(), 1, mpi::Type::int32, all),
      "MPI_Allgather");
  return firsts;
}

}  // namespace

mpi::Comm split_ranks(mpi::Comm world, int part) {
  mpi::Comm comm = mpi::Comm::null;
  launch::check_mpi(mpi::calls().comm_split(world, part, rank_in(world), &comm), "MPI_Comm_split");
  return comm;
}

MpiComms MpiComms::make(mpi::Comm world) {
  MpiComms comms;
  launch::check_mpi(mpi::calls().comm_dup(world, &comms.all), "MPI_Comm_dup");
  const auto firsts = find_first_ranks(comms.all);
  const int own = rank_in(comms.all);
  std::map<int, std::vector<int>> by_first;
  for (size_t rank = 0; rank < firsts.size(); ++rank)
    by_first[firsts[rank]].push_back(static_cast<int>(rank));
  for (const auto& [first, ranks] : by_first) {
    const auto found = std::ranges::find(ranks, own);
    if (found != ranks.end()) {
      comms.node = static_cast<int>(comms.nodes.size());
      comms.local_rank = static_cast<int>(found - ranks.begin());
    }
    comms.nodes.push_back(ranks);
  }
  launch::check_mpi(
      mpi::calls().comm_split(comms.all, comms.local_rank == 0 ? 0 : mpi::kUndefined, 0, &comms.leaders),
      "MPI_Comm_split");
  return comms;
}

void require_threads() {
  int level = mpi::kThreadSingle;
  launch::check_mpi(mpi::calls().query_thread(&level), "MPI_Query_thread");
  if (level >= mpi::kThreadSerialized) return;
  throw Error("MPI was started for the main thread only, but backward calls it from another thread",
              "backend mpi", "start MPI with MPI_THREAD_SERIALIZED or higher, or choose the backend gloo");
}

void require_success(int code, const char* call) {
  if (code != mpi::kSuccess) throw WaitExpired{false, launch::mpi_failure(code, call)};
}

}  // namespace lockstep::comm
