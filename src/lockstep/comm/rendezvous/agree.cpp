// The ranks compare their commands and configs, and the GPUs they use.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/rendezvous/join.h"
#include "lockstep/launch/variables.h"

namespace lockstep::comm {
namespace {

constexpr size_t kNamedFacts = 3;

std::string value_or_nothing(const std::string& value) {
  return value.empty() ? "not set" : base::printable(value);
}

std::string one_difference(const std::string& name,
                           const std::vector<std::map<std::string, std::string>>& all) {
  std::string expected;  // by the first rank that knows it
  size_t first = all.size();
  std::map<std::string, std::vector<int>> others;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto found = all[rank].find(name);
    const std::string value = found == all[rank].end() ? "" : found->second;
    if (name == kJobIdFact && value.empty()) continue;  // a rank started over ssh does not know its job's id
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
    text += format(", {} on {}", value_or_nothing(value), base::rank_list(ranks));
  return text;
}

// Every rank's part, in rank order.
template <class Part>
std::vector<Part> unpack_all(const std::vector<std::string>& texts) {
  std::vector<Part> all;
  for (const auto& text : texts) all.push_back(base::from_rank<Part>(text));
  return all;
}

InputError refusal_of(const Job& job, const std::vector<Facts>& all) {
  std::set<std::string> versions;
  for (const auto& facts : all)
    for (const auto& [name, value] : facts)
      if (name == kVersionFact) versions.insert(value);
  return InputError(
             "the ranks were started with different commands or configs: " + difference(all),
             format("{} ranks of one job, launcher {}", job.world, job.launcher),
             "start every rank with the same command and config; if these are two jobs, set a different "
             "MASTER_PORT for one of them")
      .of(versions.size() > 1 ? Code::versions : Code::bad_input);
}

struct Gpu {
  std::string uuid, bus, host;
  int node = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, uuid, bus, host, node)

std::string ranks_text(const std::set<int>& ranks) {
  return base::rank_list({ranks.begin(), ranks.end()});
}

// Each part of a divided GPU (MIG) has its own UUID, but all have one bus id, which NCCL compares.
std::string shared_gpu(const std::vector<std::vector<Gpu>>& gpus) {
  std::map<std::string, std::set<int>> by_uuid;
  std::map<std::pair<int, std::string>, std::set<int>> by_place;  // node, and bus on host
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    for (const auto& [uuid, bus, host, node] : gpus[rank]) {
      by_uuid[format("{} on host {}", uuid, host)].insert(static_cast<int>(rank));
      if (!bus.empty()) by_place[{node, format("{} on host {}", bus, host)}].insert(static_cast<int>(rank));
    }
  }
  for (const auto& [gpu, ranks] : by_uuid)
    if (ranks.size() > 1) return format("{} share one GPU ({})", ranks_text(ranks), gpu);
  for (const auto& [place, ranks] : by_place) {
    if (ranks.size() > 1)
      return format("{} use parts (MIG) of one GPU ({}), and NCCL allows one rank per GPU", ranks_text(ranks),
                    place.second);
  }
  return "";
}

}  // namespace

std::string difference(const std::vector<Facts>& facts) {
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> all;
  for (const auto& one : facts) {
    all.emplace_back(one.begin(), one.end());
    for (const auto& [name, value] : one)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
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

void agree(const launch::Runtime& runtime, const std::function<Facts()>& facts) {
  const auto own = base::pack_outcome([&] { return base::as_line(nlohmann::json(facts())); });
  const auto outcomes = runtime.gather(own);
  const auto verdict = [&]() -> std::string {
    if (std::ranges::count(outcomes, own) == runtime.job().world) return base::unpack_outcome(own);
    std::vector<std::string> texts;
    for (const auto& outcome : outcomes) texts.push_back(base::unpack_outcome(outcome));
    const auto all = unpack_all<Facts>(texts);
    if (!difference(all).empty()) throw refusal_of(runtime.job(), all);
    return "";
  };
  runtime.from_first(verdict);
}

void refuse_shared_gpus(const launch::Runtime& runtime, const std::vector<launch::GpuIdentity>& own) {
  const Job& job = runtime.job();
  std::vector<Gpu> gpus;
  for (const auto& [uuid, bus] : own)
    if (!uuid.empty()) gpus.push_back({uuid, bus, job.host, job.node_rank});
  const auto all = runtime.gather(base::as_line(nlohmann::json(gpus)));
  // NCCL 2.30 and later allows two ranks on one GPU if this is set; it is slow
  const auto may_share = launch::text_of(launch::current_environment(), "NCCL_MULTI_RANK_GPU_ENABLE");
  const bool compares = job.rank == 0 && may_share != "1";
  const auto shared = runtime.broadcast(compares ? shared_gpu(unpack_all<std::vector<Gpu>>(all)) : "");
  if (shared.empty()) return;
  throw InputError(shared, format("{} ranks, launcher {}", job.world, job.launcher),
                   "request one GPU per rank, start fewer ranks per node, set launch.device to cpu, or set "
                   "launch.backend to shared (sums through the CPU)")
      .of(Code::gpu);
}

}  // namespace lockstep::comm
