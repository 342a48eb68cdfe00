#include "tools/doctor/session.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/join.h"
#include "tools/doctor/rules.h"

namespace lockstep::doctor {
namespace {

constexpr size_t kNamedRanks = 8;

}  // namespace

Session::Json Session::round(const std::function<Json()>& work, const Answer& answer) {
  Json own, reply;
  try {
    own["value"] = work();
  } catch (const std::exception& error) {
    own["failed"] = failure_of(error);
  }
  try {
    reply = Json::parse(comm::ask_rank_zero(
        runtime, base::as_line(own),
        [&](const std::vector<std::string>& texts) { return base::as_line(reply_to(texts, answer)); },
        timeout_));
  } catch (const std::exception& error) {
    is_broken_ = true;
    lost_ = fault_of(error).ranks;
    throw RoundFailed(Findings{missing(error)});
  }
  if (reply.contains("failed")) throw RoundFailed(reply["failed"].get<Findings>());
  return reply["value"];
}

// On rank 0. Throws nothing, because the other ranks wait for the answer.
Session::Json Session::reply_to(const std::vector<std::string>& texts, const Answer& answer) const {
  try {
    std::vector<Json> values;
    std::vector<std::pair<int, Finding>> failed;
    for (const auto& text : texts) {
      const auto own = Json::parse(text);
      if (own.contains("failed"))
        failed.emplace_back(static_cast<int>(values.size()), own["failed"].get<Finding>());
      values.push_back(own.value("value", Json()));
    }
    if (!failed.empty()) return {{"failed", of_ranks(failed, texts.size())}};
    return {{"value", answer ? answer(values) : Json()}};
  } catch (const std::exception& error) {
    return {{"failed", Findings{failure_of(error)}}};
  }
}

Finding Session::missing(const std::exception& error) const {
  std::vector<std::string> names;
  for (const int rank : lost_) {
    const auto known =
        std::ranges::find_if(cluster.ranks, [&](const RankFacts& facts) { return facts.job.rank == rank; });
    names.push_back(known == cluster.ranks.end()
                        ? format("rank {}", rank)
                        : format("rank {} (host {}, pid {})", rank, known->job.host, known->pid));
  }
  if (names.empty()) return failure_of(error);
  return failure(
      format("{} did not answer within {} s", some_of(names, kNamedRanks), timeout_.count() / 1000.0),
      "check whether that process is stopped (state T in ps), has died, or its node does not answer");
}

std::string time_text(double seconds) {
  if (seconds >= 1) return format("{:.1f} s", seconds);
  return seconds >= 1e-3 ? format("{:.1f} ms", seconds * 1e3) : format("{:.0f} us", seconds * 1e6);
}

}  // namespace lockstep::doctor
