#include "lockstep/launch/layout.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"

namespace lockstep::launch {
namespace {

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// two network namespaces have two loopbacks, whatever they call themselves
unsigned long network_space() {
  struct stat space {};
  return ::stat("/proc/self/ns/net", &space) == 0 ? static_cast<unsigned long>(space.st_ino) : 0;
}

std::optional<int> unless_guessed(const Job& job, const char* field, int value) {
  const bool guess = std::find(job.guessed.begin(), job.guessed.end(), field) != job.guessed.end();
  return guess ? std::nullopt : std::optional(value);
}

std::string digits_of(const std::optional<int>& number) {
  return number ? std::to_string(*number) : "";
}

std::optional<int> number_in(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return std::stoi(text);
}

std::vector<std::string> parts_of(const std::string& text, size_t count) {
  auto parts = base::unpack_texts(text);
  if (parts.size() != count)
    throw Error("a rank says where it is in another way", "the ranks' meeting",
                "start the same lockstep on every rank");
  return parts;
}

using Node = std::vector<size_t>;  // its ranks, in order

std::vector<Node> nodes_by_launcher(const std::vector<Seat>& seats) {
  std::map<int, Node> nodes;
  for (size_t rank = 0; rank < seats.size(); ++rank) nodes[*seats[rank].node_rank].push_back(rank);
  std::vector<Node> list;
  for (auto& [number, ranks] : nodes) list.push_back(std::move(ranks));
  return list;
}

std::vector<Node> nodes_by_machine(const std::vector<Seat>& seats) {
  std::map<std::string, size_t> numbers;
  std::vector<Node> list;
  for (size_t rank = 0; rank < seats.size(); ++rank) {
    const auto [found, is_new] = numbers.emplace(seats[rank].machine, list.size());
    if (is_new) list.emplace_back();
    list[found->second].push_back(rank);
  }
  return list;
}

// local ranks as told, where they are 0, 1, 2, ... in any order
bool fits_together(const std::vector<Seat>& seats, const Node& node) {
  std::vector<bool> taken(node.size());
  for (const size_t rank : node) {
    const auto local = seats[rank].local_rank;
    if (!local || *local < 0 || static_cast<size_t>(*local) >= node.size()) return false;
    if (taken[static_cast<size_t>(*local)]) return false;
    taken[static_cast<size_t>(*local)] = true;
  }
  return true;
}

std::string warning_for(const Seat& seat, const Place& place) {
  if (seat.local_rank.value_or(place.local_rank) != place.local_rank) {
    return format(
        "the launcher gave it local rank {}, which does not fit the {} ranks of its node: taken for {}",
        *seat.local_rank, place.local_world, place.local_rank);
  }
  if (seat.local_world.value_or(place.local_world) != place.local_world) {
    return format("the launcher says {} ranks on its node, and there are {}", *seat.local_world,
                  place.local_world);
  }
  return "";
}

}  // namespace

Seat own_seat(const Job& job) {
  return {format("{} {} {}", job.host, boot_id(), network_space()),
          unless_guessed(job, "local_rank", job.local_rank),
          unless_guessed(job, "local_world", job.local_world),
          unless_guessed(job, "node_rank", job.node_rank)};
}

std::string pack_seat(const Seat& seat) {
  return base::pack_texts(
      {seat.machine, digits_of(seat.local_rank), digits_of(seat.local_world), digits_of(seat.node_rank)});
}

Seat unpack_seat(const std::string& text) {
  const auto parts = parts_of(text, 4);
  return {parts[0], number_in(parts[1]), number_in(parts[2]), number_in(parts[3])};
}

std::vector<Place> layout_of(const std::vector<Seat>& seats) {
  const bool all_numbered =
      std::all_of(seats.begin(), seats.end(), [](const Seat& seat) { return seat.node_rank.has_value(); });
  const auto nodes = all_numbered ? nodes_by_launcher(seats) : nodes_by_machine(seats);
  std::vector<Place> places(seats.size());
  for (size_t number = 0; number < nodes.size(); ++number) {
    const Node& node = nodes[number];
    const bool believed = fits_together(seats, node);
    for (size_t i = 0; i < node.size(); ++i) {
      Place& place = places[node[i]];
      place = {believed ? *seats[node[i]].local_rank : static_cast<int>(i), static_cast<int>(node.size()),
               static_cast<int>(number), static_cast<int>(nodes.size())};
      place.warning = warning_for(seats[node[i]], place);
    }
  }
  return places;
}

std::string pack_place(const Place& place) {
  return base::pack_texts({std::to_string(place.local_rank), std::to_string(place.local_world),
                           std::to_string(place.node_rank), std::to_string(place.nodes), place.warning});
}

Place unpack_place(const std::string& text) {
  const auto parts = parts_of(text, 5);
  return {std::stoi(parts[0]), std::stoi(parts[1]), std::stoi(parts[2]), std::stoi(parts[3]), parts[4]};
}

void set_place(Job& job, const Place& place) {
  for (const auto& field : job.guessed) job.because[field] = "found when the ranks met";
  const auto is_guess = [&](const std::string& warning) {
    return std::find(job.guesses.begin(), job.guesses.end(), warning) != job.guesses.end();
  };
  std::erase_if(job.warnings, is_guess);
  job.guessed.clear();
  job.guesses.clear();
  if (!place.warning.empty()) job.warnings.push_back(format("rank {}: {}", job.rank, place.warning));
  job.local_rank = place.local_rank;
  job.local_world = place.local_world;
  job.node_rank = place.node_rank;
  job.nodes = place.nodes;
}

}  // namespace lockstep::launch
