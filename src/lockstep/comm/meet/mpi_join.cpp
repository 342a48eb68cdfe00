#include "lockstep/comm/meet/mpi_join.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/awake.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr int kHello = 1;
constexpr int kAnswer = 2;
constexpr auto kBetweenTests = std::chrono::microseconds(200);
// rank 0 waits for the full timeout before it speaks, so the others wait a little longer for it
constexpr auto kAnswerGrace = std::chrono::seconds(2);

// What both sides need. The communicator is the runtime's own: no message of a user's meets ours.
struct Gathering {
  const Job& job;
  mpi::Comm comm;
  Milliseconds timeout;
};

// True when all are done in time.
bool wait_all(std::vector<mpi::Request>& requests, Milliseconds timeout) {
  base::AwakeTime awake;
  int done = 0;
  while (true) {
    launch::check_mpi(
        mpi::calls().testall(static_cast<int>(requests.size()), requests.data(), &done, mpi::kIgnore),
        "MPI_Testall");
    if (done) return true;
    if (awake.passed() > timeout) return false;
    std::this_thread::sleep_for(kBetweenTests);
  }
}

void drop(mpi::Request& request) {
  if (request == mpi::Request::null) return;
  mpi::calls().cancel(&request);
  mpi::calls().request_free(&request);
}

// MPI may be unable to cancel a message and may still use its buffer, so that memory is never freed.
void drop(std::vector<mpi::Request>& requests, std::vector<int>& buffer) {
  static auto& kept = *new std::vector<std::vector<int>>;
  kept.push_back(std::move(buffer));
  for (auto& request : requests) drop(request);
}

// The ranks whose hello is still outstanding; their receives are dropped.
std::vector<int> drop_missing(std::vector<mpi::Request>& hellos) {
  std::vector<int> missing;
  for (size_t i = 0; i < hellos.size(); ++i) {
    int come = 0;
    launch::check_mpi(mpi::calls().test(&hellos[i], &come, mpi::kIgnore), "MPI_Test");
    if (come) continue;
    missing.push_back(static_cast<int>(i) + 1);
    drop(hellos[i]);
  }
  return missing;
}

[[noreturn]] void refuse_missing(const std::vector<int>& ranks, const Gathering& meeting) {
  const Job& job = meeting.job;
  throw Error(
      format("{} did not come to join the group within {} s", rank_list(ranks),
             meeting.timeout.count() / 1000.0),
      format("rank {} of {} on host {}", job.rank, job.world, job.host),
      "look in the log for an earlier error of that rank; raise launch.join_timeout if it is only slow")
      .of(Code::not_joined, ranks);
}

// A hello is empty: no late one has anything to write.
std::vector<mpi::Request> receive_hellos(const Gathering& meeting) {
  std::vector<mpi::Request> hellos(static_cast<size_t>(meeting.job.world) - 1, mpi::Request::null);
  for (int rank = 1; rank < meeting.job.world; ++rank) {
    launch::check_mpi(mpi::calls().irecv(nullptr, 0, mpi::Type::int32, rank, kHello, meeting.comm,
                                         &hellos[static_cast<size_t>(rank) - 1]),
                      "MPI_Irecv");
  }
  return hellos;
}

// Only those who came: an answer nobody waits for would be taken for that of the next meeting.
void tell(const Gathering& meeting, const std::vector<int>& missing) {
  std::vector<mpi::Request> sends;
  std::vector<int> answer = missing;
  const int count = static_cast<int>(answer.size());
  for (int rank = 1; rank < meeting.job.world; ++rank) {
    if (std::find(missing.begin(), missing.end(), rank) != missing.end()) continue;
    sends.push_back(mpi::Request::null);
    launch::check_mpi(mpi::calls().isend(answer.data(), count, mpi::Type::int32, rank, kAnswer, meeting.comm,
                                         &sends.back()),
                      "MPI_Isend");
  }
  if (!wait_all(sends, kAnswerGrace)) drop(sends, answer);
}

void host_meeting(const Gathering& meeting) {
  auto hellos = receive_hellos(meeting);
  const bool all = wait_all(hellos, meeting.timeout);
  const std::vector<int> missing = all ? std::vector<int>() : drop_missing(hellos);
  tell(meeting, missing);
  if (!missing.empty()) refuse_missing(missing, meeting);
}

void attend_meeting(const Gathering& meeting) {
  std::vector<int> missing(static_cast<size_t>(meeting.job.world));
  std::vector<mpi::Request> answer{mpi::Request::null};
  mpi::Request hello = mpi::Request::null;
  launch::check_mpi(mpi::calls().irecv(missing.data(), meeting.job.world, mpi::Type::int32, 0, kAnswer,
                                       meeting.comm, answer.data()),
                    "MPI_Irecv");
  launch::check_mpi(mpi::calls().isend(nullptr, 0, mpi::Type::int32, 0, kHello, meeting.comm, &hello),
                    "MPI_Isend");
  mpi::Status status;
  int come = 0;
  base::AwakeTime awake;
  while (!come && awake.passed() < meeting.timeout + kAnswerGrace) {
    launch::check_mpi(mpi::calls().test(answer.data(), &come, &status), "MPI_Test");
    if (!come) std::this_thread::sleep_for(kBetweenTests);
  }
  launch::check_mpi(mpi::calls().request_free(&hello), "MPI_Request_free");
  if (!come) {
    drop(answer, missing);
    refuse_missing({0}, meeting);
  }
  int count = 0;
  launch::check_mpi(mpi::calls().get_count(&status, mpi::Type::int32, &count), "MPI_Get_count");
  missing.resize(static_cast<size_t>(count));
  if (!missing.empty()) refuse_missing(missing, meeting);
}

}  // namespace

void join_over_mpi(const launch::Runtime& runtime, std::chrono::milliseconds timeout) {
  if (runtime.job().world == 1) return;
  const Gathering meeting{runtime.job(), runtime.mpi().world(), timeout};
  meeting.job.rank == 0 ? host_meeting(meeting) : attend_meeting(meeting);
}

}  // namespace lockstep::comm
