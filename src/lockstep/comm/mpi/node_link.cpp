#include "lockstep/comm/mpi/node_link.h"

#include <cstring>

#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {

// `start` gives MPI's code: what MPI refuses ends the collective, for it will not come on the other nodes.
template <class Start>
void NodeLink::run(const char* call, Patience& patience, Start&& start) {
  mpi::Request request = mpi::Request::null;
  const auto checked = [&](int code) {
    if (code != mpi::kSuccess) throw OutOfPatience{false, launch::mpi_failure(code, call)};
  };
  {
    const std::lock_guard<std::mutex> guard(mpi_);
    checked(start(&request));
  }
  patience.restart();
  for (int done = 0; true; patience.turn()) {
    const std::lock_guard<std::mutex> guard(mpi_);
    checked(mpi::calls().test(&request, &done, mpi::kIgnore));
    if (done) return;
  }
}

// Reduce-scatter by an exchange of sections, then an all-gather: each node sends about twice the message,
// however many nodes there are (Thakur, Rabenseifner and Gropp 2005, section 4.5).
void NodeLink::all_reduce(std::byte* data, size_t items, const Reduction& reduction, Patience& patience) {
  const auto nodes = static_cast<size_t>(comms_.nodes);
  const size_t section = (items + nodes - 1) / nodes * reduction.item_bytes;
  const int count = static_cast<int>(section);
  padded_.resize(section * nodes);
  sections_.resize(section * nodes);
  own_.resize(section);
  std::memcpy(padded_.data(), data, items * reduction.item_bytes);
  run("MPI_Ialltoall", patience, [&](mpi::Request* request) {
    return mpi::calls().ialltoall(padded_.data(), count, mpi::Type::byte, sections_.data(), count,
                                  mpi::Type::byte, comms_.leaders, request);
  });
  std::vector<const std::byte*> sources;
  for (size_t node = 0; node < nodes; ++node) sources.push_back(sections_.data() + node * section);
  reduction.combine(sources.data(), nodes, own_.data(), section / reduction.item_bytes);
  run("MPI_Iallgather", patience, [&](mpi::Request* request) {
    return mpi::calls().iallgather(own_.data(), count, mpi::Type::byte, padded_.data(), count,
                                   mpi::Type::byte, comms_.leaders, request);
  });
  std::memcpy(data, padded_.data(), items * reduction.item_bytes);
}

void NodeLink::broadcast(std::byte* data, size_t bytes, int root_node, Patience& patience) {
  run("MPI_Ibcast", patience, [&](mpi::Request* request) {
    return mpi::calls().ibcast(data, static_cast<int>(bytes), mpi::Type::byte, root_node, comms_.leaders,
                               request);
  });
}

void NodeLink::all_gather(const std::byte* node_blocks, size_t bytes, std::byte* all, Patience& patience) {
  std::vector<int> counts, starts;
  int at = 0;
  for (const int size : comms_.node_sizes) {
    counts.push_back(size * static_cast<int>(bytes));
    starts.push_back(at);
    at += counts.back();
  }
  const int own = comms_.local_world * static_cast<int>(bytes);
  run("MPI_Iallgatherv", patience, [&](mpi::Request* request) {
    return mpi::calls().iallgatherv(node_blocks, own, mpi::Type::byte, all, counts.data(), starts.data(),
                                    mpi::Type::byte, comms_.leaders, request);
  });
}

void NodeLink::barrier(Patience& patience) {
  run("MPI_Ibarrier", patience,
      [&](mpi::Request* request) { return mpi::calls().ibarrier(comms_.leaders, request); });
}

}  // namespace lockstep::comm
