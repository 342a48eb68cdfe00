#include "lockstep/comm/mpi/backend.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/algorithms/message_runner.h"
#include "lockstep/comm/mpi/comms.h"
#include "lockstep/comm/shm/bounded_wait.h"
#include "lockstep/comm/shm/segment.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/peer_monitor.h"
#include "lockstep/launch/process/mpi.h"
#include "lockstep/mpi/calls.h"

namespace lockstep::comm {
namespace {

/// A message between two ranks. wait() ends it, with the group's timeout. Keeps the tensor while MPI uses it.
class MessageWork : public c10d::Work {
 public:
  struct Transfer {
    at::Tensor tensor;    // the caller's
    at::Tensor buffer;    // contiguous: the tensor itself or a copy
    Collective expected;  // how errors describe it
  };
  MessageWork(int rank, c10d::OpType type, Transfer transfer, mpi::Request request,
              std::shared_ptr<PeerMonitor> monitor, std::shared_ptr<MpiLink> mpi);
  ~MessageWork() override;

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return {transfer_.tensor}; }

 private:
  bool test();
  void take(const mpi::Status& status);
  void wait_for(const Collective& expected);
  void fail(const Collective& expected, const WaitExpired& reason);

  Transfer transfer_;
  mpi::Request request_;
  std::shared_ptr<PeerMonitor> monitor_;
  std::shared_ptr<MpiLink> mpi_;
  int source_;
};

MessageWork::MessageWork(int rank, c10d::OpType type, Transfer transfer, mpi::Request request,
                         std::shared_ptr<PeerMonitor> monitor, std::shared_ptr<MpiLink> mpi)
    : Work(rank, type),
      transfer_(std::move(transfer)),
      request_(request),
      monitor_(std::move(monitor)),
      mpi_(std::move(mpi)),
      source_(transfer_.expected.peer) {}

// If the program did not wait for a message, MPI may still use the buffer: then it is leaked.
MessageWork::~MessageWork() {
  try {
    if (test()) return;
  } catch (const WaitExpired&) {
    return;  // MPI has ended the message
  }
  const std::lock_guard<std::mutex> guard(mpi_->mutex);
  mpi::calls().request_free(&request_);
  transfer_.buffer.unsafeReleaseIntrusivePtr().release();
}

bool MessageWork::test() {
  if (request_ == mpi::Request::null) return true;
  int done = 0;
  mpi::Status status;
  {
    const std::lock_guard<std::mutex> guard(mpi_->mutex);
    require_success(mpi::calls().test(&request_, &done, &status), "MPI_Test");
  }
  if (!done) return false;
  if (opType_ != c10d::OpType::SEND) take(status);
  finish();
  return true;
}

// MPI accepts a message that is too short, which would not fill the tensor.
void MessageWork::take(const mpi::Status& status) {
  source_ = status.source;
  int bytes = 0;
  require_success(mpi::calls().get_count(&status, mpi::Type::byte, &bytes), "MPI_Get_count");
  if (static_cast<size_t>(bytes) != transfer_.buffer.nbytes()) {
    throw WaitExpired{false, format("rank {} sent {} bytes, and rank {} expects {}", source_, bytes, rank_,
                                    transfer_.buffer.nbytes())};
  }
  if (!transfer_.buffer.is_same(transfer_.tensor)) transfer_.tensor.copy_(transfer_.buffer);
}

void MessageWork::fail(const Collective& expected, const WaitExpired& reason) {
  finish(monitor_->diagnose(expected, reason.cause, reason.timed_out));
}

bool MessageWork::isCompleted() {
  try {
    return Work::isCompleted() || test();
  } catch (const WaitExpired& reason) {
    fail(transfer_.expected, reason);
    return true;
  }
}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  Collective expected = transfer_.expected;
  if (timeout != kNoTimeout) expected.timeout = timeout;
  try {
    if (!Work::isCompleted()) wait_for(expected);
  } catch (const WaitExpired& reason) {
    fail(expected, reason);
  }
  if (const auto error = exception()) std::rethrow_exception(error);
  return true;
}

void MessageWork::wait_for(const Collective& expected) {
  BoundedWait wait(*monitor_, 0, expected.timeout, true);
  while (!test()) {
    try {
      wait.turn(expected.peer);
    } catch (const WaitExpired&) {
      if (!test()) throw;  // the other rank may have sent and then ended
    }
  }
}

// The message between two nodes, which the ranks of a node sum in one turn.
constexpr size_t kSlotBytes = size_t{512} << 10;
// An all-gather over nodes puts one piece per rank into a slot. It is small, so that slots only grow above
// 8,192 ranks: each rank of a node has two slots in shared memory.
constexpr size_t kLeastPiece = 64;

/// Collectives over several nodes: inside each through its shared memory, between them by MPI through their
/// first ranks. Sums are in rank order within a node, then in node order: node 0 + node 1 + node 2 …, because
/// only MPI's data movement is used.
class MpiTransport : public Transport {
 public:
  MpiTransport(std::shared_ptr<MpiLink> mpi, std::unique_ptr<NodeTransport> node, const PeerMonitor& monitor)
      : mpi_(std::move(mpi)),
        comms_(mpi_->comms),
        node_(std::move(node)),
        segment_(node_->segment()),
        monitor_(monitor) {}

  void all_reduce(const std::byte* in, std::byte* out, size_t items, const Reduction& reduction,
                  const ReductionOrder& order, BoundedWait& wait) override {
    const size_t bytes = items * reduction.item_bytes;
    if (node_->all_bring(in, out, bytes, wait)) return reduce_in_place(bytes, reduction, order, wait);
    const size_t chunk = chunk_bytes(reduction);
    for (size_t at = 0; at < bytes; at += chunk)
      reduce_chunk(in + at, out ? out + at : nullptr, std::min(chunk, bytes - at), reduction, order, wait);
  }

  void broadcast(std::byte* data, size_t bytes, int root, BoundedWait& wait) override {
    const auto has_root = [root](const auto& ranks) { return std::ranges::count(ranks, root) > 0; };
    const auto node = std::ranges::find_if(comms_.nodes, has_root) - comms_.nodes.begin();
    const auto& ranks = comms_.nodes[static_cast<size_t>(node)];
    const auto local_root = static_cast<int>(std::ranges::find(ranks, root) - ranks.begin());
    const bool here = node == comms_.node, is_root = here && local_root == comms_.local_rank;
    for (size_t at = 0; at < bytes; at += segment_.slot_bytes()) {
      const size_t now = std::min(segment_.slot_bytes(), bytes - at);
      segment_.begin(wait);
      if (is_root) copy_into_slot(segment_.own_slot(), data + at, now);
      segment_.post();
      if (is_leader() && here && !is_root) {
        segment_.wait(local_root, wait);
        std::memcpy(segment_.own_slot(), segment_.slot(local_root), now);
      }
      if (is_leader()) {
        run("MPI_Ibcast", wait, [&](mpi::Request* request) {
          return mpi::calls().ibcast(segment_.own_slot(), static_cast<int>(now), mpi::Type::byte,
                                     static_cast<int>(node), comms_.leaders, request);
        });
      }
      share_from_leader(wait);
      if (!is_root) copy_in_pieces(segment_.slot(0), data + at, now);
    }
  }

  void all_gather(const std::byte* in, size_t bytes, const std::vector<std::byte*>& outs,
                  BoundedWait& wait) override {
    const size_t chunk = segment_.slot_bytes() / outs.size();
    for (size_t at = 0; at < bytes; at += chunk) {
      const size_t now = std::min(chunk, bytes - at);
      segment_.begin(wait);
      copy_into_slot(segment_.own_slot(), in + at, now);
      segment_.post();
      if (is_leader()) gather_from_nodes(now, wait);
      share_from_leader(wait);
      const std::byte* piece = segment_.slot(0);
      for (const auto& ranks : comms_.nodes) {
        for (const int rank : ranks) {
          std::memcpy(outs[static_cast<size_t>(rank)] + at, piece, now);
          piece += now;
        }
      }
    }
  }

  void reduce_scatter(const std::vector<const std::byte*>& ins, std::byte* out, size_t items,
                      const Reduction& reduction, const ReductionOrder& order, size_t /*at*/,
                      BoundedWait& wait) override {
    const size_t chunk = segment_.slot_bytes() / reduction.item_bytes / ins.size();
    std::vector<std::byte> packed(chunk * ins.size() * reduction.item_bytes);
    for (size_t done = 0; done < items; done += chunk) {
      const size_t bytes = std::min(chunk, items - done) * reduction.item_bytes;
      const size_t offset = done * reduction.item_bytes;
      for (size_t rank = 0; rank < ins.size(); ++rank)
        std::memcpy(packed.data() + rank * bytes, ins[rank] + offset, bytes);
      all_reduce(packed.data(), packed.data(), bytes / reduction.item_bytes * ins.size(), reduction, order,
                 wait);
      std::memcpy(out + offset, packed.data() + static_cast<size_t>(monitor_.rank()) * bytes, bytes);
    }
  }

  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, size_t /*most*/,
                BoundedWait& wait) override {
    require_same_call(wait);
    MpiMessenger(*mpi_, kExchangeTag, monitor_, wait).exchange(out, in);
  }

  void barrier(BoundedWait& wait) override {
    segment_.begin(wait);
    segment_.post();
    if (is_leader()) {
      segment_.wait_all(wait);
      run("MPI_Ibarrier", wait,
          [&](mpi::Request* request) { return mpi::calls().ibarrier(comms_.leaders, request); });
    }
    share_from_leader(wait);
  }

  NodeTransport& node() override { return *node_; }

 private:
  bool is_leader() const { return comms_.local_rank == 0; }

  size_t chunk_bytes(const Reduction& reduction) const {
    return segment_.slot_bytes() / reduction.item_bytes * reduction.item_bytes;
  }

  // The ranks of the node sum it in sections into the first rank's slot. It exchanges it with other nodes.
  void reduce_chunk(const std::byte* in, std::byte* out, size_t bytes, const Reduction& reduction,
                    const ReductionOrder& order, BoundedWait& wait) {
    segment_.begin(wait);
    copy_into_slot(segment_.own_slot(), in, bytes);
    segment_.post();
    std::vector<std::byte*> slots;
    for (int rank = 0; rank < segment_.size(); ++rank) slots.push_back(segment_.slot(rank));
    sum_for_leader(slots, bytes, reduction, order, wait);
    if (is_leader()) sum_over_nodes(segment_.own_slot(), bytes / reduction.item_bytes, reduction, wait);
    share_from_leader(wait);
    if (out) copy_in_pieces(segment_.slot(0), out, bytes);
  }

  // All ranks have posted their shares before. Ends with a post that the first rank waits for.
  void sum_for_leader(const std::vector<std::byte*>& shares, size_t bytes, const Reduction& reduction,
                      const ReductionOrder& order, BoundedWait& wait) {
    segment_.wait_all(wait);
    node_->sum_section_for_first(shares, bytes, reduction, order);
    segment_.post();
    if (is_leader()) segment_.wait_all(wait);
  }

  // Uses the chunks of reduce_chunk between nodes, because another node may have no block.
  void reduce_in_place(size_t bytes, const Reduction& reduction, const ReductionOrder& order,
                       BoundedWait& wait) {
    const auto shares = node_->shares();
    sum_for_leader(shares, bytes, reduction, order, wait);
    const size_t chunk = chunk_bytes(reduction);
    for (size_t at = 0; is_leader() && at < bytes; at += chunk)
      sum_over_nodes(shares[0] + at, std::min(chunk, bytes - at) / reduction.item_bytes, reduction, wait);
    share_from_leader(wait);
    if (!is_leader()) copy_in_pieces(shares[0], shares[static_cast<size_t>(segment_.rank())], bytes);
    segment_.post();
    if (is_leader()) segment_.wait_all(wait);  // else its share would change while others read it
  }

  // The second post of an operation over nodes: the first rank's slot has the result.
  void share_from_leader(BoundedWait& wait) {
    segment_.post();
    segment_.wait(0, wait);
  }

  // Reduce-scatter by an exchange of sections, then an all-gather: each node sends about twice the message,
  // however many nodes there are (Thakur, Rabenseifner and Gropp 2005, section 4.5).
  void sum_over_nodes(std::byte* data, size_t items, const Reduction& reduction, BoundedWait& wait) {
    const size_t nodes = comms_.nodes.size();
    const size_t section = (items + nodes - 1) / nodes * reduction.item_bytes;
    const int count = static_cast<int>(section);
    padded_.resize(section * nodes);
    sections_.resize(section * nodes);
    own_.resize(section);
    std::memcpy(padded_.data(), data, items * reduction.item_bytes);
    run("MPI_Ialltoall", wait, [&](mpi::Request* request) {
      return mpi::calls().ialltoall(padded_.data(), count, mpi::Type::byte, sections_.data(), count,
                                    mpi::Type::byte, comms_.leaders, request);
    });
    std::vector<const std::byte*> sources;
    for (size_t node = 0; node < nodes; ++node) sources.push_back(sections_.data() + node * section);
    reduction.combine(sources.data(), nodes, own_.data(), section / reduction.item_bytes);
    run("MPI_Iallgather", wait, [&](mpi::Request* request) {
      return mpi::calls().iallgather(own_.data(), count, mpi::Type::byte, padded_.data(), count,
                                     mpi::Type::byte, comms_.leaders, request);
    });
    std::memcpy(data, padded_.data(), items * reduction.item_bytes);
  }

  // Every rank's slot into the own one, node by node.
  void gather_from_nodes(size_t bytes, BoundedWait& wait) {
    segment_.wait_all(wait);
    own_.resize(bytes * static_cast<size_t>(segment_.size()));
    for (int rank = 0; rank < segment_.size(); ++rank)
      std::memcpy(own_.data() + static_cast<size_t>(rank) * bytes, segment_.slot(rank), bytes);
    std::vector<int> counts, starts;
    int at = 0;
    for (const auto& ranks : comms_.nodes) {
      counts.push_back(static_cast<int>(ranks.size() * bytes));
      starts.push_back(at);
      at += counts.back();
    }
    run("MPI_Iallgatherv", wait, [&](mpi::Request* request) {
      return mpi::calls().iallgatherv(own_.data(), static_cast<int>(own_.size()), mpi::Type::byte,
                                      segment_.own_slot(), counts.data(), starts.data(), mpi::Type::byte,
                                      comms_.leaders, request);
    });
  }

  // On one node the segment compares the calls.
  void require_same_call(BoundedWait& wait) {
    std::vector<CallWord> calls(monitor_.peers().size());
    std::vector<std::byte*> places;
    for (auto& call : calls) places.push_back(reinterpret_cast<std::byte*>(&call));
    const CallWord& own = segment_.call();
    all_gather(reinterpret_cast<const std::byte*>(&own), sizeof own, places, wait);
    for (size_t rank = 0; rank < calls.size(); ++rank)
      if (calls[rank] != own) throw CallMismatch{static_cast<int>(rank), calls[rank]};
  }

  // `start` returns MPI's code. An error there ends the collective: it will not come on the other nodes.
  template <class Start>
  void run(const char* call, BoundedWait& wait, Start&& start) {
    mpi::Request request = mpi::Request::null;
    {
      const std::lock_guard<std::mutex> guard(mpi_->mutex);
      require_success(start(&request), call);
    }
    wait.restart();
    for (int done = 0; true; wait.turn()) {
      const std::lock_guard<std::mutex> guard(mpi_->mutex);
      require_success(mpi::calls().test(&request, &done, mpi::kIgnore), call);
      if (done) return;
    }
  }

  std::shared_ptr<MpiLink> mpi_;
  const MpiComms& comms_;
  std::unique_ptr<NodeTransport> node_;
  shm::Segment& segment_;
  const PeerMonitor& monitor_;
  std::vector<std::byte> padded_, sections_, own_;
};

std::unique_ptr<Transport> open_transport(const std::shared_ptr<MpiLink>& mpi, PeerMonitor& monitor,
                                          std::chrono::milliseconds timeout) {
  const auto& comms = mpi->comms;
  const NodeRanks node{comms.local_ranks(), comms.local_rank};
  const bool one_node = comms.nodes.size() == 1;
  const size_t slot_bytes = one_node ? slot_bytes_for(node.ranks.size())
                                     : std::max(kSlotBytes, monitor.peers().size() * kLeastPiece);
  std::string why;
  auto opened = open_node(monitor, format("node/{}", comms.node), node, slot_bytes, timeout, why);
  if (opened && one_node) return opened;
  if (opened) return std::make_unique<MpiTransport>(mpi, std::move(opened), monitor);
  throw Error(format("a rank needs {} KiB of shared memory, and this node has none: {}",
                     shm::Segment::bytes_for(slot_bytes) >> 10, why),
              "backend mpi", "make /dev/shm larger (in a container: --shm-size), or set launch.backend: gloo")
      .of(Code::shared_memory);
}

using c10d::OpType;

int checked_tag(int tag) {
  TORCH_CHECK(tag >= 0 && tag < kExchangeTag, "the tag ", tag, " is not one that every MPI supports (0 to ",
              kExchangeTag - 1, ")");
  return tag;
}

int checked_bytes(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.nbytes() <= static_cast<size_t>(std::numeric_limits<int>::max()),
              "a message of the mpi backend has at most 2 GiB, not ", tensor.nbytes(), " bytes");
  return static_cast<int>(tensor.nbytes());
}

}  // namespace

MpiBackend::MpiBackend(std::shared_ptr<MpiLink> mpi, std::shared_ptr<PeerMonitor> monitor,
                       std::chrono::milliseconds join_timeout, std::chrono::milliseconds timeout)
    : TransportBackend("mpi", {}, open_transport(mpi, *monitor, join_timeout), monitor, timeout,
                       SumOrder::by_rank, Execution::in_the_call),
      mpi_(std::move(mpi)) {}

std::exception_ptr MpiBackend::run_messages(const Collective& collective,
                                            const std::function<void(Messenger&)>& body,
                                            const OnGivenUp& /*on_given_up*/) {
  try {
    BoundedWait wait(monitor(), collective.number, collective.timeout, true);
    MpiMessenger messenger(*mpi_, kCollectiveTag, monitor(), wait);
    body(messenger);
    return nullptr;
  } catch (const WaitExpired& reason) {
    return monitor().diagnose(collective, reason.cause, reason.timed_out);
  } catch (const std::exception& error) {
    return monitor().diagnose(collective, error.what(), false);
  }
}

template <class Start>
MpiBackend::WorkPtr MpiBackend::post(OpType type, int peer, const at::Tensor& tensor,
                                     const at::Tensor& buffer, Start&& start) {
  monitor().require_alive();
  Collective expected = message_with(type, peer, timeout());
  mpi::Request request = mpi::Request::null;
  int code = mpi::kSuccess;
  {
    const std::lock_guard<std::mutex> guard(mpi_->mutex);
    code = start(mpi_->comms.all, &request);
  }
  if (code != mpi::kSuccess)
    std::rethrow_exception(
        monitor().diagnose(expected, launch::mpi_failure(code, expected.what.c_str()), false));
  return c10::make_intrusive<MessageWork>(getRank(), type,
                                          MessageWork::Transfer{tensor, buffer, std::move(expected)}, request,
                                          shared_monitor(), mpi_);
}

MpiBackend::WorkPtr MpiBackend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = single(tensors);
  require_rank(to, getSize(), "the receiver of a message");
  const at::Tensor buffer = tensor.contiguous();
  return post(
      OpType::SEND, to, tensor, buffer,
      [&, bytes = checked_bytes(buffer), tag = checked_tag(tag)](mpi::Comm all, mpi::Request* request) {
        return mpi::calls().isend(buffer.data_ptr(), bytes, mpi::Type::byte, to, tag, all, request);
      });
}

MpiBackend::WorkPtr MpiBackend::receive(OpType type, Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = single(tensors);
  const at::Tensor buffer =
      tensor.is_contiguous() ? tensor : at::empty_like(tensor, at::MemoryFormat::Contiguous);
  return post(
      type, type == OpType::RECV ? from : -1, tensor, buffer,
      [&, bytes = checked_bytes(buffer), tag = checked_tag(tag)](mpi::Comm all, mpi::Request* request) {
        return mpi::calls().irecv(buffer.data_ptr(), bytes, mpi::Type::byte, from, tag, all, request);
      });
}

MpiBackend::WorkPtr MpiBackend::recv(Tensors& tensors, int from, int tag) {
  require_rank(from, getSize(), "the sender of a message");
  return receive(OpType::RECV, tensors, from, tag);
}

MpiBackend::WorkPtr MpiBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(OpType::RECVANYSOURCE, tensors, mpi::kAnySource, tag);
}

}  // namespace lockstep::comm
