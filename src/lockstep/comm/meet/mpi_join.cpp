#include "lockstep/comm/meet/mpi_join.h"

#include <mpi.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "lockstep/base/awake.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/launch/mpi.h"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr int kHello = 1;
constexpr int kVerdict = 2;
constexpr auto kPoll = std::chrono::microseconds(200);
// rank 0 waits for the full timeout before it speaks, so the others wait a little longer for it
constexpr auto kVerdictGrace = std::chrono::seconds(2);

// What both sides need. The communicator is the runtime's own: no message of a user's meets ours.
struct Gathering {
  const Job& job;
  MPI_Comm comm;
  Milliseconds timeout;
};

// True when all are done in time.
bool wait_all(std::vector<MPI_Request>& requests, Milliseconds timeout) {
  base::AwakeTime awake;
  int done = 0;
  while (true) {
    launch::check_mpi(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
    if (done) return true;
    if (awake.passed() > timeout) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

// What cannot be cancelled any more is let go of: there is nobody left to tell.
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
    launch::check_mpi(MPI_Test(&hellos[i], &come, MPI_STATUS_IGNORE), "MPI_Test");
    if (come) continue;
    missing.push_back(static_cast<int>(i) + 1);
    drop(hellos[i]);
  }
  return missing;
}

[[noreturn]] void refuse(const std::string& who, const Gathering& meeting) {
  const Job& job = meeting.job;
  throw Error(
      format("{} did not come to join the group within {} s", who, meeting.timeout.count() / 1000.0),
      format("rank {} of {} on host {}", job.rank, job.world, job.host),
      "look in the log for an earlier error of that rank; raise launch.join_timeout if it is only slow");
}

std::vector<MPI_Request> receive_hellos(const Gathering& meeting, std::vector<int>& room) {
  std::vector<MPI_Request> hellos(static_cast<size_t>(meeting.job.world) - 1, MPI_REQUEST_NULL);
  room.resize(hellos.size());
  for (int rank = 1; rank < meeting.job.world; ++rank) {
    const auto i = static_cast<size_t>(rank) - 1;
    launch::check_mpi(MPI_Irecv(&room[i], 1, MPI_INT, rank, kHello, meeting.comm, &hellos[i]), "MPI_Irecv");
  }
  return hellos;
}

// Only those who came: a verdict nobody waits for would be taken for that of the next meeting.
void tell(const Gathering& meeting, const std::vector<int>& missing) {
  std::vector<MPI_Request> sends;
  const int count = static_cast<int>(missing.size());
  for (int rank = 1; rank < meeting.job.world; ++rank) {
    if (std::find(missing.begin(), missing.end(), rank) != missing.end()) continue;
    sends.push_back(MPI_REQUEST_NULL);
    launch::check_mpi(MPI_Isend(missing.data(), count, MPI_INT, rank, kVerdict, meeting.comm, &sends.back()),
                      "MPI_Isend");
  }
  if (wait_all(sends, kVerdictGrace)) return;
  for (auto& send : sends) drop(send);
}

void host_meeting(const Gathering& meeting) {
  std::vector<int> room;
  auto hellos = receive_hellos(meeting, room);
  const bool all = wait_all(hellos, meeting.timeout);
  const std::vector<int> missing = all ? std::vector<int>() : drop_missing(hellos);
  tell(meeting, missing);
  if (!missing.empty()) refuse(rank_list(missing), meeting);
}

void attend_meeting(const Gathering& meeting) {
  std::vector<int> missing(static_cast<size_t>(meeting.job.world));
  MPI_Request verdict = MPI_REQUEST_NULL, hello = MPI_REQUEST_NULL;
  launch::check_mpi(
      MPI_Irecv(missing.data(), meeting.job.world, MPI_INT, 0, kVerdict, meeting.comm, &verdict),
      "MPI_Irecv");
  launch::check_mpi(MPI_Isend(&meeting.job.rank, 1, MPI_INT, 0, kHello, meeting.comm, &hello), "MPI_Isend");
  MPI_Status status;
  int come = 0;
  base::AwakeTime awake;
  while (!come && awake.passed() < meeting.timeout + kVerdictGrace) {
    launch::check_mpi(MPI_Test(&verdict, &come, &status), "MPI_Test");
    if (!come) std::this_thread::sleep_for(kPoll);
  }
  int count = 0;
  if (come) launch::check_mpi(MPI_Get_count(&status, MPI_INT, &count), "MPI_Get_count");
  drop(verdict);
  if (hello != MPI_REQUEST_NULL) launch::check_mpi(MPI_Request_free(&hello), "MPI_Request_free");
  if (!come) refuse("rank 0", meeting);
  missing.resize(static_cast<size_t>(count));
  if (!missing.empty()) refuse(rank_list(missing), meeting);
}

}  // namespace

void join_over_mpi(const launch::Runtime& runtime, std::chrono::milliseconds timeout) {
  if (runtime.job().world == 1) return;
  const Gathering meeting{runtime.job(), runtime.mpi().world(), timeout};
  meeting.job.rank == 0 ? host_meeting(meeting) : attend_meeting(meeting);
}

}  // namespace lockstep::comm
