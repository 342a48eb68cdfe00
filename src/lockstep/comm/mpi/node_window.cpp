#include "lockstep/comm/mpi/node_window.h"

#include <sys/statvfs.h>

#include <cstdint>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/mpi/bell.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {
namespace {

// The flag has 128 bytes to itself (processors fetch cache lines in pairs); the slots begin on a page.
constexpr size_t kFlagBytes = 4096;

Bell& flag_of(std::byte* segment) {
  return *reinterpret_cast<Bell*>(segment);
}

void free_window(void* what) {
  const std::unique_ptr<mpi::Window> window(static_cast<mpi::Window*>(what));
  mpi::calls().win_unlock_all(*window);  // MPI is ending: nobody is left to tell of a failure
  mpi::calls().win_free(window.get());
}

int64_t free_shared_memory() {
  struct statvfs facts {};
  return ::statvfs("/dev/shm", &facts) == 0 ? static_cast<int64_t>(facts.f_bavail * facts.f_frsize) : 0;
}

// Each rank's segment comes from its own memory node and is touched first by its owner.
mpi::Window allocate(mpi::Comm node, size_t bytes) {
  mpi::Info info = mpi::Info::null;
  launch::check_mpi(mpi::calls().info_create(&info), "MPI_Info_create");
  launch::check_mpi(mpi::calls().info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
  mpi::Window window = mpi::Window::null;
  void* base = nullptr;
  const int code =
      mpi::calls().win_allocate_shared(static_cast<mpi::Size>(bytes), 1, info, node, &base, &window);
  mpi::calls().info_free(&info);
  if (code != mpi::kSuccess)
    throw Error(
        format(
            "a rank needs {} KiB of shared memory, and this node gives none: /dev/shm has {} KiB left ({})",
            bytes >> 10, free_shared_memory() >> 10, launch::mpi_failure(code, "MPI_Win_allocate_shared")),
        "backend mpi", "make /dev/shm larger (a container: --shm-size), or set launch.backend: gloo");
  launch::check_mpi(mpi::calls().win_set_errhandler(window, mpi::Handler::errors_return),
                    "MPI_Win_set_errhandler");
  launch::check_mpi(mpi::calls().win_lock_all(mpi::kNoCheck, window), "MPI_Win_lock_all");
  free_at_finalize(free_window, new mpi::Window(window));
  return window;
}

std::byte* segment_of(mpi::Window window, int rank) {
  mpi::Size bytes = 0;
  int unit = 0;
  void* base = nullptr;
  launch::check_mpi(mpi::calls().win_shared_query(window, rank, &bytes, &unit, &base),
                    "MPI_Win_shared_query");
  const auto address = reinterpret_cast<uintptr_t>(base);
  return reinterpret_cast<std::byte*>((address + kFlagBytes - 1) / kFlagBytes * kFlagBytes);
}

}  // namespace

NodeWindow::NodeWindow(const MpiComms& comms, size_t slot_bytes)
    : rank_(comms.local_rank), slot_bytes_(slot_bytes), global_ranks_(comms.local_ranks) {
  // one page more, because the segment's own start need not be on a page
  const mpi::Window window = allocate(comms.node, 2 * kFlagBytes + 2 * slot_bytes);
  for (int rank = 0; rank < comms.local_world; ++rank) segments_.push_back(segment_of(window, rank));
  new (segments_[static_cast<size_t>(rank_)]) Bell();
  launch::check_mpi(mpi::calls().barrier(comms.node), "MPI_Barrier");
}

std::byte* NodeWindow::slot(int local_rank) const {
  return segments_[static_cast<size_t>(local_rank)] + kFlagBytes + (turns_ & 1) * slot_bytes_;
}

// A slot was last used two turns ago. A rank that has posted in the turn before has read all of that.
void NodeWindow::begin(Patience& patience) {
  for (int rank = 0; rank < size(); ++rank) wait_for(rank, turn_before_, patience);
  turn_before_ = posts_ + 1;
  ++turns_;
}

void NodeWindow::post() {
  flag_of(segments_[static_cast<size_t>(rank_)]).ring(++posts_);
}

void NodeWindow::wait_all(Patience& patience) const {
  for (int rank = 0; rank < size(); ++rank) wait_for(rank, posts_, patience);
}

void NodeWindow::wait_for(int local_rank, uint64_t posts, Patience& patience) const {
  auto& flag = flag_of(segments_[static_cast<size_t>(local_rank)]);
  if (flag.rung() >= posts) return;
  patience.restart();
  const auto sleep = [&](std::chrono::milliseconds longest) { flag.sleep_until_rung(posts, longest); };
  try {
    while (flag.rung() < posts) patience.turn(global_ranks_[static_cast<size_t>(local_rank)], sleep);
  } catch (const OutOfPatience&) {
    if (flag.rung() < posts) throw;  // it may have posted and then ended
  }
}

}  // namespace lockstep::comm
