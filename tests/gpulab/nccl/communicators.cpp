// How communicators begin and end: ranks meet in shared memory, named after the process that made the id.
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <unordered_map>

#include "lab.h"
#include "nccl/comm.h"

namespace lab::nccl {
namespace {

constexpr const char* kStart = "gpulab-nccl-";

struct Handles {
  std::mutex mutex;
  std::unordered_map<ncclComm_t, CommPtr> all;
};
Handles& handles() {
  static auto* const made = new Handles;  // streams may use theirs until the process ends
  return *made;
}

ncclComm_t handle_of(const CommPtr& comm) {
  const auto handle = reinterpret_cast<ncclComm_t>(comm.get());
  const std::lock_guard lock(handles().mutex);
  handles().all.emplace(handle, comm);
  return handle;
}

void forget(ncclComm_t handle) {
  const std::lock_guard lock(handles().mutex);
  handles().all.erase(handle);
}

bool is_creator_gone(const std::string& name) {
  const int creator = std::atoi(name.c_str() + std::strlen(kStart));
  return creator > 0 && ::kill(creator, 0) != 0 && errno == ESRCH;
}

// What meetings have left that never came about.
void sweep() {
  DIR* folder = ::opendir("/dev/shm");
  if (!folder) return;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.starts_with(kStart) && is_creator_gone(name)) ::shm_unlink(("/" + name).c_str());
  }
  ::closedir(folder);
}

std::shared_ptr<Board> mapped(int flags, int file) {
  void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<Board*>(memory), [](Board* board) { ::munmap(board, sizeof(Board)); }};
}

// New where nobody has opened it yet.
std::shared_ptr<Board> open_board(const std::string& name) {
  const int file = ::shm_open(("/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  const bool sized = ::ftruncate(file, sizeof(Board)) == 0;
  auto board = sized ? mapped(MAP_SHARED, file) : nullptr;
  ::close(file);
  return board;
}

void take_seat(Comm& comm) {
  Seat& seat = comm.own();
  ::gethostname(seat.host, sizeof seat.host - 1);
  if (const char* chosen = std::getenv("NCCL_HOSTID"))
    std::snprintf(seat.host, sizeof seat.host, "%s", chosen);
  cudaDeviceGetPCIBusId(seat.bus, sizeof seat.bus, comm.device);
}

void find_hosts(Comm& comm) {
  for (int rank = 0; rank < comm.size; ++rank) {
    const auto same = std::find_if(comm.hosts.begin(), comm.hosts.end(), [&](const std::vector<int>& host) {
      return std::strcmp(comm.seat(host.front()).host, comm.seat(rank).host) == 0;
    });
    if (same == comm.hosts.end()) {
      comm.hosts.push_back({rank});
    } else {
      same->push_back(rank);
    }
  }
}

// NCCL tells GPUs apart by their bus ids.
ncclResult_t refuse_shared_gpus(const Comm& comm) {
  if (const char* allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE"); allowed && *allowed != '0')
    return ncclSuccess;
  for (int second = 0; second < comm.size; ++second) {
    for (int first = 0; first < second; ++first) {
      const Seat &one = comm.seat(first), &other = comm.seat(second);
      if (std::strcmp(one.host, other.host) != 0 || std::strcmp(one.bus, other.bus) != 0) continue;
      return refuse(
          ncclInvalidUsage,
          formatted(
              "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable "
              "this "
              "configuration. (Duplicate GPU detected : rank %d and rank %d both on CUDA device %s of %s)",
              first, second, one.bus, one.host));
    }
  }
  return ncclSuccess;
}

ncclResult_t meet(Comm& comm, const std::string& name) {
  comm.board = open_board(name);
  if (!comm.board) return refuse(ncclSystemError, "no shared memory for a communicator in /dev/shm");
  if (comm.own().taken.exchange(1) != 0)
    return refuse(ncclInvalidUsage, formatted("Bootstrap Root : rank %d of %d ranks has already checked in",
                                              comm.rank, comm.size));
  take_seat(comm);
  if (++comm.board->attached >= comm.size) comm.board->bell.ring();
  bool lost = false;
  comm.wait(comm.board->bell,
            [&] { return comm.board->attached >= comm.size || (lost = is_creator_gone(name)); });
  ::shm_unlink(("/" + name).c_str());
  if (lost)
    return refuse(ncclRemoteError,
                  "socketProgress: Connection closed by remote peer: the process that made the id is gone");
  find_hosts(comm);
  return refuse_shared_gpus(comm);
}

ncclResult_t check_size(int size, int rank) {
  if (size < 1 || rank < 0 || rank >= size)
    return refuse(ncclInvalidArgument, formatted("Invalid rank requested : %d/%d", rank, size));
  if (size <= kMaxRanks) return ncclSuccess;
  return refuse(ncclInvalidUsage,
                formatted("the pretended NCCL has room for %d ranks, not for %d", kMaxRanks, size));
}

ncclResult_t start(ncclComm_t* handle, int size, const ncclUniqueId& id, int rank) {
  if (const auto error = check_size(size, rank)) return error;
  const std::string name(id.internal, ::strnlen(id.internal, sizeof id.internal));
  if (!name.starts_with(kStart))
    return refuse(ncclInvalidArgument, "ncclCommInitRank: an id that ncclGetUniqueId has not made");
  auto comm = std::make_shared<Comm>();
  comm->size = size;
  comm->rank = rank;
  cudaGetDevice(&comm->device);
  if (const auto error = meet(*comm, name)) return error;
  *handle = handle_of(comm);
  return ncclSuccess;
}

// The ranks of one process: all on one board, each at its seat, so nobody needs to wait.
ncclResult_t start_all(ncclComm_t* made, int count, const int* devices) {
  const auto board = mapped(MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  if (!board) return refuse(ncclSystemError, "no memory for communicators");
  std::vector<CommPtr> all;
  for (int i = 0; i < count; ++i) {
    auto& comm = all.emplace_back(std::make_shared<Comm>());
    comm->size = count;
    comm->rank = i;
    comm->device = devices ? devices[i] : i;
    comm->board = board;
    take_seat(*comm);
  }
  for (const auto& comm : all) {
    find_hosts(*comm);
    if (const auto error = refuse_shared_gpus(*comm)) return error;
  }
  for (int i = 0; i < count; ++i) made[i] = handle_of(all[static_cast<std::size_t>(i)]);
  return ncclSuccess;
}

template <class Use>
ncclResult_t with(ncclComm_t handle, const char* call, const Use& use) {
  const auto comm = find(handle);
  if (!comm) return refuse_handle(call);
  use(comm);
  return ncclSuccess;
}

}  // namespace

CommPtr find(ncclComm_t handle) {
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().all.find(handle);
  return found == handles().all.end() ? nullptr : found->second;
}

ncclResult_t refuse_handle(const char* call) {
  return refuse(ncclInvalidArgument, formatted("%s: no communicator, or one that has been destroyed", call));
}

}  // namespace lab::nccl

using namespace lab::nccl;

NCCL_CALL ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

NCCL_CALL ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  sweep();
  std::random_device random;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "%s%d-%08x%08x", kStart, ::getpid(), random(), random());
  return ncclSuccess;
}

NCCL_CALL ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                              ncclConfig_t* config) {
  if (config && config->blocking == 0)
    return refuse(ncclInvalidUsage, "the pretended NCCL has no nonblocking communicators");
  return start(comm, size, id, rank);
}
NCCL_CALL ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return start(comm, size, id, rank);
}
NCCL_CALL ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  if (const auto error = check_size(count, 0)) return error;
  return start_all(comms, count, devices);
}

NCCL_CALL ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  return with(handle, "ncclCommFinalize", [](const CommPtr& comm) { comm->turns.wait_empty(); });
}

NCCL_CALL ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (!handle) return ncclSuccess;
  return with(handle, "ncclCommDestroy", [&](const CommPtr& comm) {
    comm->turns.wait_empty();
    forget(handle);
  });
}

NCCL_CALL ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (!handle) return ncclSuccess;
  return with(handle, "ncclCommAbort", [&](const CommPtr& comm) {
    while (abort_hangs()) ::pause();
    comm->abort();
    comm->turns.wait_quiet();
    forget(handle);
  });
}

NCCL_CALL ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  return with(handle, "ncclCommGetAsyncError", [&](const CommPtr& comm) { *error = comm->state(); });
}
NCCL_CALL ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  return with(handle, "ncclCommCount", [&](const CommPtr& comm) { *count = comm->size; });
}
NCCL_CALL ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  return with(handle, "ncclCommUserRank", [&](const CommPtr& comm) { *rank = comm->rank; });
}

// To know a buffer beforehand makes the real one faster, and changes nothing here.
NCCL_CALL ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t, void** handle) {
  *handle = data;
  return with(comm, "ncclCommRegister", [](const CommPtr&) {});
}
NCCL_CALL ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  return with(comm, "ncclCommDeregister", [](const CommPtr&) {});
}

// What there is no imitation of: defined under their names by the assembler, whatever their arguments are.
#define NOT_IMITATED(name)                                              \
  NCCL_CALL ncclResult_t lab_not_imitated_##name() __asm__(#name);      \
  NCCL_CALL ncclResult_t lab_not_imitated_##name() {                    \
    lab::say("not imitated: %s", #name);                                \
    return refuse(ncclInvalidUsage, "not imitated by the lab: " #name); \
  }

NOT_IMITATED(ncclAlltoAll)
NOT_IMITATED(ncclCommGetUniqueId)
NOT_IMITATED(ncclCommGrow)
NOT_IMITATED(ncclCommInitRankScalable)
NOT_IMITATED(ncclCommMemStats)
NOT_IMITATED(ncclCommQueryProperties)
NOT_IMITATED(ncclCommResume)
NOT_IMITATED(ncclCommRevoke)
NOT_IMITATED(ncclCommShrink)
NOT_IMITATED(ncclCommSplit)
NOT_IMITATED(ncclCommSuspend)
NOT_IMITATED(ncclCommWindowDeregister)
NOT_IMITATED(ncclCommWindowRegister)
NOT_IMITATED(ncclDevCommCreate)
NOT_IMITATED(ncclDevCommDestroy)
NOT_IMITATED(ncclGather)
NOT_IMITATED(ncclGetLsaDevicePointer)
NOT_IMITATED(ncclGetLsaMultimemDevicePointer)
NOT_IMITATED(ncclGetMultimemDevicePointer)
NOT_IMITATED(ncclGetPeerDevicePointer)
NOT_IMITATED(ncclGroupSimulateEnd)
NOT_IMITATED(ncclMemAlloc)
NOT_IMITATED(ncclMemFree)
NOT_IMITATED(ncclPutSignal)
NOT_IMITATED(ncclRedOpCreatePreMulSum)
NOT_IMITATED(ncclRedOpDestroy)
NOT_IMITATED(ncclScatter)
NOT_IMITATED(ncclSignal)
NOT_IMITATED(ncclWaitSignal)
NOT_IMITATED(ncclWinGetUserPtr)
