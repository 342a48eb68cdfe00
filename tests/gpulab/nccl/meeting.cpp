#include "nccl/meeting.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "nccl/errors.h"
#include "nccl/names.h"
#include "nccl/processes.h"
#include "nccl/settings.h"

namespace lab::nccl {
namespace {

Hosts hosts_of(const Comm& comm) {
  Hosts hosts;
  for (int rank = 0; rank < comm.size; ++rank) {
    const std::string host = comm.seat(rank).facts.host;
    auto at = hosts.begin();
    while (at != hosts.end() && comm.seat(at->front()).facts.host != host) ++at;
    if (at == hosts.end()) at = hosts.insert(at, std::vector<int>{});
    at->push_back(rank);
  }
  return hosts;
}

ncclResult_t check_sizes(const Comm& comm) {
  for (int rank = 0; rank < comm.size; ++rank) {
    const int size = comm.seat(rank).facts.size;
    if (size == comm.size) continue;
    return refuse(ncclInvalidUsage,
                  formatted("Bootstrap Root : mismatch in rank count from procs %d : %d (rank %d)", comm.size,
                            size, rank));
  }
  return ncclSuccess;
}

// NCCL's words since 2.30, and those before. Two slices of one GPU (MIG) have its bus id both: NCCL takes
// them for one.
ncclResult_t refuse_shared(int first, int second, const Facts& facts) {
  return refuse(
      ncclInvalidUsage,
      formatted(
          "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this "
          "configuration. (Duplicate GPU detected : rank %d and rank %d both on CUDA device %s of %s)",
          first, second, facts.bus, facts.host));
}

ncclResult_t check_devices(const Comm& comm) {
  if (settings().devices_may_be_shared) return ncclSuccess;
  for (int second = 0; second < comm.size; ++second) {
    const auto& facts = comm.seat(second).facts;
    for (int first = 0; first < second; ++first) {
      const auto& other = comm.seat(first).facts;
      if (std::string(facts.host) == other.host && std::string(facts.bus) == other.bus)
        return refuse_shared(first, second, facts);
    }
  }
  return ncclSuccess;
}

ncclResult_t take_seat(Comm& comm) {
  Seat& seat = comm.own();
  if (seat.taken.exchange(1) != 0)
    return refuse(ncclInvalidUsage, formatted("Bootstrap Root : rank %d of %d ranks has already checked in",
                                              comm.rank, comm.size));
  seat.facts = own_facts(comm);
  if (++comm.board->attached >= comm.size) comm.board->bell.ring();
  return ncclSuccess;
}

// NCCL meets over sockets: that the one who made the id is gone shows there.
bool wait_for_all(Comm& comm) {
  const auto creator = creator_of(comm.name);
  bool lost = false;
  const auto ready = [&] {
    if (comm.board->attached >= comm.size) return true;
    return lost = is_creator_gone(creator);
  };
  comm.wait(comm.board->bell, ready, Comm::Waiter::host);
  return !lost;
}

ncclResult_t meet_at_board(Comm& comm) {
  comm.set_board(open_board(comm.name));
  if (!comm.board) return refuse(ncclSystemError, "no shared memory for a communicator in /dev/shm");
  if (const auto error = take_seat(comm)) return error;
  if (!wait_for_all(comm))
    return refuse(ncclRemoteError,
                  "socketProgress: Connection closed by remote peer: the process that made the id is gone");
  const auto error = check_all(comm);
  comm.talk();  // all have looked
  return error;
}

}  // namespace

Facts own_facts(const Comm& comm) {
  Facts facts;
  facts.process = ::getpid();
  facts.pid_namespace = own_pid_namespace();
  facts.size = comm.size;
  std::snprintf(facts.host, sizeof facts.host, "%s", host_identity().c_str());
  cudaDeviceProp device{};
  if (cudaDeviceGetPCIBusId(facts.bus, sizeof facts.bus, comm.device) != cudaSuccess &&
      cudaGetDeviceProperties(&device, comm.device) == cudaSuccess)
    std::snprintf(facts.bus, sizeof facts.bus, "%04x:%02x:%02x.0", device.pciDomainID, device.pciBusID,
                  device.pciDeviceID);
  return facts;
}

ncclResult_t check_all(Comm& comm) {
  comm.hosts = hosts_of(comm);
  if (const auto error = check_sizes(comm)) return error;
  return check_devices(comm);
}

ncclResult_t meet(Comm& comm) {
  try {
    const auto error = meet_at_board(comm);
    forget_board(comm.name);
    return error;
  } catch (const Aborted&) {
    forget_board(comm.name);
    return refuse(ncclInternalError, "aborted before all ranks had come");
  }
}

}  // namespace lab::nccl
