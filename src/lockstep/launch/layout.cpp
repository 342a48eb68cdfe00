#include "lockstep/launch/layout.h"

#include <algorithm>
#include <map>

#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/launch/identify.h"

namespace lockstep::launch {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Place, local_rank, local_world, node_rank, nodes, warning)

constexpr int kUnknown = -1;  // in messages

void to_json(nlohmann::json& json, const ReportedPlace& reported) {
  json = {reported.machine, reported.local_rank.value_or(kUnknown), reported.local_world.value_or(kUnknown),
          reported.node_rank.value_or(kUnknown)};
}

void from_json(const nlohmann::json& json, ReportedPlace& reported) {
  const auto if_known = [&](size_t place) {
    const int number = json.at(place);
    return number == kUnknown ? std::nullopt : std::optional(number);
  };
  reported = {json.at(0), if_known(1), if_known(2), if_known(3)};
}

namespace {

std::optional<int> if_given(const Job& job, const char* field, int value) {
  return is_given(job, field) ? std::optional(value) : std::nullopt;
}

using Node = std::vector<size_t>;  // its ranks, in order

std::vector<Node> nodes_by_launcher(const std::vector<ReportedPlace>& ranks) {
  std::map<int, Node> nodes;
  for (size_t rank = 0; rank < ranks.size(); ++rank) nodes[*ranks[rank].node_rank].push_back(rank);
  std::vector<Node> list;
  for (auto& [number, ranks] : nodes) list.push_back(std::move(ranks));
  return list;
}

std::vector<Node> nodes_by_machine(const std::vector<ReportedPlace>& ranks) {
  std::map<std::string, size_t> numbers;
  std::vector<Node> list;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [found, is_new] = numbers.emplace(ranks[rank].machine, list.size());
    if (is_new) list.emplace_back();
    list[found->second].push_back(rank);
  }
  return list;
}

// Whether the launcher's local ranks are 0, 1, 2, ... in any order.
bool have_local_ranks(const std::vector<ReportedPlace>& ranks, const Node& node) {
  std::vector<int> sorted;
  for (const size_t rank : node) sorted.push_back(ranks[rank].local_rank.value_or(kUnknown));
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int>(i)) return false;
  return true;
}

std::string warning_for(const ReportedPlace& reported, const Place& place) {
  if (reported.local_rank.value_or(place.local_rank) != place.local_rank) {
    return format("local rank {} from the launcher does not fit the local world size {}: using {}",
                  *reported.local_rank, place.local_world, place.local_rank);
  }
  if (reported.local_world.value_or(place.local_world) != place.local_world) {
    return format("the launcher reported the local world size {}, but it is {}", *reported.local_world,
                  place.local_world);
  }
  return "";
}

}  // namespace

ReportedPlace reported_place(const Job& job) {
  const auto boot_id = base::first_line("/proc/sys/kernel/random/boot_id");
  // two network namespaces have two loopbacks, even if the host name is the same
  return {format("{} {} {}", job.host, boot_id, base::own_namespace("net")),
          if_given(job, "local_rank", job.local_rank), if_given(job, "local_world", job.local_world),
          if_given(job, "node_rank", job.node_rank)};
}

std::string pack_reported_place(const ReportedPlace& reported) {
  return base::as_line(nlohmann::json(reported));
}

std::vector<Place> layout_of(const std::vector<ReportedPlace>& ranks) {
  const bool all_numbered = std::ranges::all_of(
      ranks, [](const ReportedPlace& reported) { return reported.node_rank.has_value(); });
  const auto nodes = all_numbered ? nodes_by_launcher(ranks) : nodes_by_machine(ranks);
  std::vector<Place> places(ranks.size());
  for (size_t number = 0; number < nodes.size(); ++number) {
    const Node& node = nodes[number];
    const bool has_local_ranks = have_local_ranks(ranks, node);
    for (size_t i = 0; i < node.size(); ++i) {
      Place& place = places[node[i]];
      place = {has_local_ranks ? *ranks[node[i]].local_rank : static_cast<int>(i),
               static_cast<int>(node.size()), static_cast<int>(number), static_cast<int>(nodes.size())};
      place.warning = warning_for(ranks[node[i]], place);
    }
  }
  return places;
}

std::string pack_layout(const std::vector<std::string>& ranks) {
  std::vector<ReportedPlace> all;
  for (const auto& text : ranks) all.push_back(base::from_rank<ReportedPlace>(text));
  return base::as_line(nlohmann::json(layout_of(all)));
}

Place place_in(const std::string& layout, int rank) {
  return base::from_rank<std::vector<Place>>(layout).at(static_cast<size_t>(rank));
}

void set_place(Job& job, const Place& place) {
  for (const auto& field : job.guessed) job.because[field] = "found when the ranks joined";
  job.guessed.clear();
  if (!place.warning.empty()) job.warnings.push_back(format("rank {}: {}", job.rank, place.warning));
  job.local_rank = place.local_rank;
  job.local_world = place.local_world;
  job.node_rank = place.node_rank;
  job.nodes = place.nodes;
}

}  // namespace lockstep::launch
