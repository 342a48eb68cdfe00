#include "lockstep/comm/meet/join.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/mpi_join.h"
#include "lockstep/comm/meet/open_files.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/comm/meet/store.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/layout.h"
#include "lockstep/launch/variables.h"

namespace lockstep::comm {
namespace {

constexpr const char* kJobId = "job id";
constexpr const char* kVersion = "lockstep's version";
constexpr const char* kSame = "same";
constexpr const char* kDiffers = "differs";
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

constexpr char kFacts = 'F', kRefusal = 'E';

// This rank's facts; or its error, for all.
std::string packed_facts(const std::function<Facts()>& tell) {
  try {
    return kFacts + pack_facts(tell());
  } catch (const Error& error) {
    return kRefusal + base::pack_error(error);
  }
}

// Short digests first: that all are the same is the rule, and a config has some kilobytes.
std::string digest_of(const std::string& text) {
  return text[0] == kRefusal ? text : std::to_string(std::hash<std::string>{}(text));
}

bool all_same(const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(), [&](const auto& text) { return text == texts.front(); });
}

const std::string* first_refusal(const std::vector<std::string>& texts) {
  const auto found = std::find_if(texts.begin(), texts.end(),
                                  [](const auto& text) { return !text.empty() && text[0] == kRefusal; });
  return found == texts.end() ? nullptr : &*found;
}

std::string difference_in(const std::vector<std::string>& packed, Code& code) {
  std::vector<Facts> all;
  for (const auto& text : packed) all.push_back(unpack_facts(text.substr(1)));
  std::set<std::string> versions;
  for (const auto& facts : all)
    for (const auto& [name, value] : facts)
      if (name == kVersion) versions.insert(value);
  code = versions.size() > 1 ? Code::versions : Code::bad_input;
  return difference(all);
}

InputError refusal_of(const Job& job, const std::string& differs, Code code) {
  return InputError(
             "the ranks were started with different commands or configs: " + differs,
             format("{} ranks that met as one job, launcher {}", job.world, job.launcher),
             "start every rank with the same command and config; where these are two jobs, give each a "
             "MASTER_PORT of its own")
      .of(code);
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
  const Job& job = runtime.job();
  const std::string own = packed_facts(tell);
  const auto digests = runtime.gather(digest_of(own));
  const std::string* refusal = first_refusal(digests);
  const auto answer = runtime.broadcast(refusal ? *refusal : all_same(digests) ? kSame : kDiffers);
  if (answer == kSame) return;
  if (answer != kDiffers) base::throw_packed_error(answer.substr(1));
  const auto packed = runtime.gather(own);
  Code code = Code::bad_input;
  const auto own_text = job.rank == 0 ? difference_in(packed, code) : "";
  const auto refused = base::unpack_texts(runtime.broadcast(base::pack_texts({own_text, name_of(code)})));
  if (!refused.at(0).empty()) throw refusal_of(job, refused.at(0), code_of(refused.at(1)));
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

void join_ranks(launch::Runtime& runtime, std::chrono::milliseconds timeout) {
  const Job& job = runtime.job();
  if (job.world == 1) return;
  if (runtime.has_mpi()) {
    runtime.be_patient(timeout);
    join_over_mpi(runtime, timeout);
  } else {
    make_room_for_files(files_for(job));
    runtime.meet_in(open_exchange(job, timeout));
    agree_on_layout(runtime);
  }
  check_alike(runtime, [&] { return facts_of_job(job); });
}

}  // namespace lockstep::comm
