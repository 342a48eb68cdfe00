#include "comm/mpi_join.h"

#include <mpi.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "comm/peers.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHello = 19539;
constexpr int kVerdict = 19540;
constexpr auto kPoll = std::chrono::microseconds(200);
// rank 0 waits for the full timeout before it speaks, so the others wait a little longer for it
constexpr auto kVerdictGrace = std::chrono::seconds(2);

// True when all are done before the deadline.
bool wait_all(std::vector<MPI_Request>& requests, Clock::time_point deadline) {
  int done = 0;
  while (true) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done) return true;
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

void drop(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) return;
  MPI_Cancel(&request);
  MPI_Request_free(&request);
}

// The ranks whose hello is still outstanding; their receives are dropped.
std::vector<int> drop_missing(std::vector<MPI_Request>& hellos) {
  std::vector<int> missing;
  for (size_t i = 0; i < hellos.size(); ++i) {
    int come = 0;
    MPI_Test(&hellos[i], &come, MPI_STATUS_IGNORE);
    if (come) continue;
    missing.push_back(static_cast<int>(i) + 1);
    drop(hellos[i]);
  }
  return missing;
}

[[noreturn]] void refuse(const std::string& who, const Job& job, std::chrono::milliseconds timeout) {
  throw Error(
      format("{} did not come to join the group within {} s", who, timeout.count() / 1000.0),
      format("rank {} of {} on host {}", job.rank, job.world, job.host),
      "look in the log for an earlier error of that rank; raise launch.join_timeout if it is only slow");
}

std::vector<MPI_Request> receive_hellos(const Job& job, std::vector<int>& room) {
  std::vector<MPI_Request> hellos(static_cast<size_t>(job.world) - 1);
  room.resize(hellos.size());
  for (int rank = 1; rank < job.world; ++rank) {
    const auto i = static_cast<size_t>(rank) - 1;
    MPI_Irecv(&room[i], 1, MPI_INT, rank, kHello, MPI_COMM_WORLD, &hellos[i]);
  }
  return hellos;
}

// Only those who came: a verdict nobody waits for would be taken for that of the next meeting.
void tell(const Job& job, const std::vector<int>& missing, Clock::time_point deadline) {
  std::vector<MPI_Request> sends;
  const int count = static_cast<int>(missing.size());
  for (int rank = 1; rank < job.world; ++rank) {
    if (std::find(missing.begin(), missing.end(), rank) != missing.end()) continue;
    sends.push_back(MPI_REQUEST_NULL);
    MPI_Isend(missing.data(), count, MPI_INT, rank, kVerdict, MPI_COMM_WORLD, &sends.back());
  }
  if (wait_all(sends, deadline)) return;
  for (auto& send : sends) drop(send);
}

void host_meeting(const Job& job, std::chrono::milliseconds timeout) {
  std::vector<int> room;
  auto hellos = receive_hellos(job, room);
  const bool all = wait_all(hellos, Clock::now() + timeout);
  const std::vector<int> missing = all ? std::vector<int>() : drop_missing(hellos);
  tell(job, missing, Clock::now() + kVerdictGrace);
  if (!missing.empty()) refuse(rank_list(missing), job, timeout);
}

void attend_meeting(const Job& job, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout + kVerdictGrace;
  std::vector<int> missing(static_cast<size_t>(job.world));
  std::vector<MPI_Request> requests(2);
  MPI_Irecv(missing.data(), job.world, MPI_INT, 0, kVerdict, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(&job.rank, 1, MPI_INT, 0, kHello, MPI_COMM_WORLD, &requests[1]);
  MPI_Status status;
  int come = 0;
  while (!come && Clock::now() < deadline) {
    MPI_Test(&requests[0], &come, &status);
    if (!come) std::this_thread::sleep_for(kPoll);
  }
  int count = 0;
  if (come) MPI_Get_count(&status, MPI_INT, &count);
  drop(requests[0]);
  if (requests[1] != MPI_REQUEST_NULL) MPI_Request_free(&requests[1]);
  if (!come) refuse("rank 0", job, timeout);
  missing.resize(static_cast<size_t>(count));
  if (!missing.empty()) refuse(rank_list(missing), job, timeout);
}

}  // namespace

void join_over_mpi(const Job& job, std::chrono::milliseconds timeout) {
  if (job.world == 1) return;
  job.rank == 0 ? host_meeting(job, timeout) : attend_meeting(job, timeout);
}

}  // namespace lockstep::comm
