#include "lockstep/comm/meet/join.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/gather_texts.h"
#include "lockstep/comm/meet/open_files.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/comm/meet/rendezvous.h"
#include "lockstep/comm/meet/store.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/layout.h"
#include "lockstep/launch/process/mpi.h"
#include "lockstep/launch/variables.h"

namespace lockstep::comm {
namespace {

constexpr const char* kJobId = "job id";
constexpr const char* kVersion = "lockstep's version";
constexpr size_t kNamedFacts = 3;

std::string pack_facts(const Facts& facts) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : facts) texts.insert(texts.end(), {name, value});
  return base::pack_texts(texts);
}

Facts unpack_facts(const std::string& packed) {
  Facts facts;
  const auto texts = base::unpack_texts(packed);
  for (size_t i = 0; i + 1 < texts.size(); i += 2) facts.emplace_back(texts[i], texts[i + 1]);
  return facts;
}

// A rank that was started over ssh has no job id of its own, and belongs to the job all the same.
bool is_unknown(const std::string& name, const std::string& value) {
  return name == kJobId && value.empty();
}

std::string value_or_nothing(const std::string& value) {
  return value.empty() ? "not set" : base::printable(value);
}

std::string one_difference(const std::string& name,
                           const std::vector<std::map<std::string, std::string>>& all) {
  std::string expected;  // by the first rank that knows
  size_t first = all.size();
  std::map<std::string, std::vector<int>> others;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto found = all[rank].find(name);
    const std::string value = found == all[rank].end() ? "" : found->second;
    if (is_unknown(name, value)) continue;
    if (first == all.size()) {
      first = rank;
      expected = value;
    } else if (value != expected) {
      others[value].push_back(static_cast<int>(rank));
    }
  }
  if (others.empty()) return "";
  std::string text = format("{} is {} on rank {}", name, value_or_nothing(expected), first);
  for (const auto& [value, ranks] : others)
    text += format(", {} on {}", value_or_nothing(value), rank_list(ranks));
  return text;
}

InputError refusal_of(const Job& job, const std::vector<Facts>& all) {
  std::set<std::string> versions;
  for (const auto& facts : all)
    for (const auto& [name, value] : facts)
      if (name == kVersion) versions.insert(value);
  return InputError(
             "the ranks were started with different commands or configs: " + difference(all),
             format("{} ranks that met as one job, launcher {}", job.world, job.launcher),
             "start every rank with the same command and config; where these are two jobs, give each a "
             "MASTER_PORT of its own")
      .of(versions.size() > 1 ? Code::versions : Code::bad_input);
}

// Rank 0's verdict.
void compare_facts(const Job& job, const std::vector<std::string>& outcomes) {
  const bool alike = std::all_of(outcomes.begin(), outcomes.end(),
                                 [&](const auto& outcome) { return outcome == outcomes.front(); });
  if (alike) return void(base::unpack_outcome(outcomes.front()));
  std::vector<Facts> all;
  for (const auto& outcome : outcomes) all.push_back(unpack_facts(base::unpack_outcome(outcome)));
  if (!difference(all).empty()) throw refusal_of(job, all);
}

std::string pack_gpus(const Job& job, const std::vector<launch::GpuIdentity>& gpus) {
  std::vector<std::string> texts;
  for (const auto& [uuid, bus] : gpus)
    if (!uuid.empty()) texts.insert(texts.end(), {uuid, bus, job.host, std::to_string(job.node_rank)});
  return base::pack_texts(texts);
}

std::string ranks_text(const std::set<int>& ranks) {
  return rank_list({ranks.begin(), ranks.end()});
}

// The parts of a divided GPU (MIG) have a UUID each, and one place on their node: that is what NCCL compares.
std::string shared_gpu(const std::vector<std::string>& gpus) {
  std::map<std::string, std::set<int>> by_uuid;
  std::map<std::pair<std::string, std::string>, std::set<int>> by_place;  // node, and bus on host
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto texts = base::unpack_texts(gpus[rank]);  // as pack_gpus() has them
    for (size_t i = 0; i + 3 < texts.size(); i += 4) {
      const auto &uuid = texts[i], &bus = texts[i + 1], &host = texts[i + 2], &node = texts[i + 3];
      by_uuid[format("{} on host {}", uuid, host)].insert(static_cast<int>(rank));
      if (!bus.empty()) by_place[{node, format("{} on host {}", bus, host)}].insert(static_cast<int>(rank));
    }
  }
  for (const auto& [gpu, ranks] : by_uuid)
    if (ranks.size() > 1) return format("{} share one GPU ({})", ranks_text(ranks), gpu);
  for (const auto& [place, ranks] : by_place) {
    if (ranks.size() > 1)
      return format("{} have parts (MIG) of one GPU ({}), and NCCL takes one rank a GPU", ranks_text(ranks),
                    place.second);
  }
  return "";
}

// NCCL 2.30 and later takes two ranks on one GPU from who says so: to try it, for it is slow.
bool may_share_gpus() {
  return launch::text_of(launch::current_environment(), "NCCL_MULTI_RANK_GPU_ENABLE") == "1";
}

Facts facts_of_job(const Job& job) {
  return {{kJobId, job.job_id}, {kVersion, LOCKSTEP_VERSION}};
}

// Without MPI each rank has only its own word for where it is.
void agree_on_layout(launch::Runtime& runtime) {
  const auto texts = runtime.gather(launch::pack_seat(launch::own_seat(runtime.job())));
  std::string packed;
  if (runtime.job().rank == 0) {
    std::vector<launch::Seat> seats;
    for (const auto& text : texts) seats.push_back(launch::unpack_seat(text));
    std::vector<std::string> places;
    for (const auto& place : launch::layout_of(seats)) places.push_back(launch::pack_place(place));
    packed = base::pack_texts(places);
  }
  const auto places = base::unpack_texts(runtime.broadcast(packed));
  runtime.set_place(launch::unpack_place(places.at(static_cast<size_t>(runtime.job().rank))));
}

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

std::string difference(const std::vector<Facts>& facts) {
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> all;
  for (const auto& one : facts) {
    all.emplace_back(one.begin(), one.end());
    for (const auto& [name, value] : one) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::vector<std::string> found;
  for (const auto& name : names) {
    auto text = one_difference(name, all);
    if (!text.empty()) found.push_back(std::move(text));
  }
  const size_t named = std::min(found.size(), kNamedFacts);
  const size_t rest = found.size() - named;
  found.resize(named);
  return base::join(found, "; ") + (rest == 0 ? "" : format("; and {} more", rest));
}

void check_alike(const launch::Runtime& runtime, const std::function<Facts()>& tell) {
  const auto outcomes = runtime.gather(base::pack_outcome([&] { return pack_facts(tell()); }));
  base::unpack_outcome(runtime.broadcast(runtime.job().rank == 0 ? base::pack_outcome([&] {
    compare_facts(runtime.job(), outcomes);
    return std::string();
  })
                                                                 : ""));
}

void refuse_shared_gpus(const launch::Runtime& runtime, const std::vector<launch::GpuIdentity>& own) {
  const Job& job = runtime.job();
  const auto all = runtime.gather(pack_gpus(job, own));
  const auto shared = runtime.broadcast(job.rank == 0 && !may_share_gpus() ? shared_gpu(all) : "");
  if (shared.empty()) return;
  throw InputError(shared, format("{} ranks, launcher {}", job.world, job.launcher),
                   "ask the scheduler for a GPU a rank, start fewer ranks a node, set launch.device to cpu, "
                   "or launch.device to cuda "
                   "and launch.backend to shared (sums through the CPU)")
      .of(Code::gpu);
}

void join_over_mpi(const launch::Runtime& runtime, Milliseconds timeout) {
  if (runtime.job().world == 1) return;
  const Gathering meeting{runtime.job(), runtime.mpi().world(), timeout};
  meeting.job.rank == 0 ? host_meeting(meeting) : attend_meeting(meeting);
}

std::string ask_rank_zero(const launch::Runtime& runtime, const std::string& text, const AnswerMaker& answer,
                          Milliseconds timeout) {
  // MPI's own gather would hold all ranks while one of them is stopped
  if (runtime.has_mpi()) join_over_mpi(runtime, timeout);
  const auto texts = runtime.gather(text);
  return runtime.broadcast(runtime.job().rank == 0 ? answer(texts) : "");
}

void join_ranks(launch::Runtime& runtime, Milliseconds timeout) {
  const Job& job = runtime.job();
  if (job.world == 1) return;
  if (runtime.has_mpi()) {
    runtime.set_timeout(timeout);
    join_over_mpi(runtime, timeout);
  } else {
    const QuietJoin quiet;
    make_room_for_files(files_for(job));
    const Meeting how = plan_rendezvous(launch::current_environment(), job, false).how;
    runtime.meet_in(open_exchange(job, timeout));
    agree_on_layout(runtime);
    if (how == Meeting::address || how == Meeting::file) runtime.meet_in(leave_port(runtime, timeout));
  }
  check_alike(runtime, [&] { return facts_of_job(job); });
}

}  // namespace lockstep::comm
