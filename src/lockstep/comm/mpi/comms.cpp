#include "lockstep/comm/mpi/comms.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/shm/bounded_wait.h"
#include "lockstep/launch/process/mpi.h"

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

namespace {

int rank_in(mpi::Comm comm) {
  int rank = 0;
  launch::check_mpi(mpi::calls().comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of(mpi::Comm comm) {
  int size = 1;
  launch::check_mpi(mpi::calls().comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

mpi::Comm split_node(mpi::Comm all) {
  mpi::Comm node = mpi::Comm::null;
  launch::check_mpi(mpi::calls().comm_split_type(all, mpi::kShared, 0, mpi::Info::null, &node),
                    "MPI_Comm_split_type");
  return node;
}

mpi::Comm split_leaders(mpi::Comm all, mpi::Comm node) {
  mpi::Comm leaders = mpi::Comm::null;
  launch::check_mpi(mpi::calls().comm_split(all, rank_in(node) == 0 ? 0 : mpi::kUndefined, 0, &leaders),
                    "MPI_Comm_split");
  return leaders;
}

std::vector<int> gather_ints(mpi::Comm comm, int own) {
  std::vector<int> values(static_cast<size_t>(size_of(comm)));
  launch::check_mpi(
      mpi::calls().allgather(&own, 1, mpi::Type::int32, values.data(), 1, mpi::Type::int32, comm),
      "MPI_Allgather");
  return values;
}

void number_nodes(MpiComms& comms) {
  int node = comms.leaders == mpi::Comm::null ? 0 : rank_in(comms.leaders);
  launch::check_mpi(mpi::calls().bcast(&node, 1, mpi::Type::int32, 0, comms.node), "MPI_Bcast");
  comms.node_index = node;
  comms.node_of_rank = gather_ints(comms.all, node);
  comms.nodes = 1 + *std::max_element(comms.node_of_rank.begin(), comms.node_of_rank.end());
  comms.node_sizes.assign(static_cast<size_t>(comms.nodes), 0);
  for (const int of : comms.node_of_rank) ++comms.node_sizes[static_cast<size_t>(of)];
  for (size_t rank = 0; rank < comms.node_of_rank.size(); ++rank)
    comms.node_order.push_back(static_cast<int>(rank));
  std::sort(comms.node_order.begin(), comms.node_order.end(), [&](int a, int b) {
    const auto node_of = [&](int rank) { return comms.node_of_rank[static_cast<size_t>(rank)]; };
    return std::pair(node_of(a), a) < std::pair(node_of(b), b);
  });
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
  comms.node = split_node(comms.all);
  comms.leaders = split_leaders(comms.all, comms.node);
  comms.local_rank = rank_in(comms.node);
  comms.local_world = size_of(comms.node);
  comms.local_ranks = gather_ints(comms.node, rank_in(comms.all));
  number_nodes(comms);
  return comms;
}

void require_threads() {
  int level = mpi::kThreadSingle;
  launch::check_mpi(mpi::calls().query_thread(&level), "MPI_Query_thread");
  if (level >= mpi::kThreadSerialized) return;
  throw Error("MPI was started for the main thread alone, and backward calls it from another", "backend mpi",
              "start MPI with MPI_THREAD_SERIALIZED or higher, or choose the backend gloo");
}

void require_success(int code, const char* call) {
  if (code != mpi::kSuccess) throw WaitExpired{false, launch::mpi_failure(code, call)};
}

}  // namespace lockstep::comm
