// The checks of the nodes' network: interfaces as every rank sees them, addresses as the others call them.
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/pack.h"
#include "lockstep/doctor/active.h"
#include "lockstep/doctor/network.h"
#include "lockstep/doctor/reach.h"

namespace lockstep::doctor {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 8s;
constexpr auto kCall = 3s;

std::string pack(const Door& door) {
  return base::pack_texts({door.host, door.address, std::to_string(door.port)});
}

std::optional<Door> unpack_door(const std::optional<std::string>& text) {
  if (!text || text->empty()) return std::nullopt;
  const auto parts = base::unpack_texts(*text);
  return Door{parts.at(0), parts.at(1), std::stoi(parts.at(2))};
}

bool leads(const Job& job) {
  return job.rank == 0 || job.local_rank == 0;
}

// This node's, on its first rank; closed when this process leaves the check.
struct Listening {
  base::Descriptor socket;
  std::string door;  // packed; empty where there is none
};

Listening listen_here(const Job& job) {
  Listening here;
  const auto network = own_network(job);
  if (!leads(job) || network.gloo.empty()) return here;
  try {
    auto [socket, port] = listen_at(network.gloo);
    here.socket = std::move(socket);
    here.door = pack(Door{job.host, network.gloo, port});
  } catch (const Error&) {
    here.door.clear();  // an address that was there a moment ago
  }
  return here;
}

std::vector<Door> doors_in(const Heard& heard) {
  std::vector<Door> doors;
  for (const auto& text : heard.texts)
    if (const auto door = unpack_door(text)) doors.push_back(*door);
  return doors;
}

// What this node did not reach, packed, and how many it called.
std::string called(const Job& job, const std::vector<Door>& doors, const std::string& own) {
  std::vector<Door> wanted;
  const auto self = unpack_door(own);
  size_t at = 0;
  while (at < doors.size() && self && !(doors[at].host == self->host && doors[at].port == self->port)) ++at;
  for (const auto other : calls_of(at, doors.size())) wanted.push_back(doors[other]);
  std::vector<std::string> parts = {std::to_string(wanted.size())};
  for (const auto& [which, why] : call(wanted, kCall))
    parts.insert(parts.end(), {job.host, pack(wanted[which]), why});
  return base::pack_texts(parts);
}

struct Calls {
  std::vector<Unreached> unreached;
  size_t count = 0;
};

Calls calls_in(const Heard& heard) {
  Calls calls;
  for (const auto& text : heard.texts) {
    if (!text || text->empty()) continue;
    const auto parts = base::unpack_texts(*text);
    calls.count += static_cast<size_t>(std::stoul(parts.at(0)));
    for (size_t i = 1; i + 2 < parts.size(); i += 3)
      calls.unreached.push_back({parts[i], *unpack_door(parts[i + 1]), parts[i + 2]});
  }
  return calls;
}

// Whatever the backend, the ranks meet at rank 0's address first.
void note(const Calls& calls, const std::optional<Door>& first, Known& known) {
  if (!calls.unreached.empty() && known.no_gloo.empty()) known.no_gloo = "the nodes do not reach each other";
  if (!first) known.no_store = "the ranks meet at rank 0's address, and it has none to take";
  for (const auto& one : calls.unreached)
    if (first && one.door.address == first->address && one.door.port == first->port)
      known.no_store = format("the ranks meet at rank 0's address, which {} does not reach", one.from);
}

}  // namespace

Findings run_interfaces(const Bench& bench) {
  const Job& job = bench.runtime.job();
  const auto heard = bench.talk.round(pack(own_network(job)), kPatience);
  std::vector<Network> networks;
  for (const auto& text : heard.texts) {
    if (!text) continue;
    networks.push_back(unpack_network(*text));
    if (!networks.back().refused.empty()) bench.known.no_gloo = "it has no address to take";
  }
  if (!bench.speaks()) return {};
  auto findings = judge_networks(networks, job.nodes);
  if (!heard.why.empty()) findings.push_back(silence(bench, heard));
  return findings;
}

Findings run_reach(const Bench& bench) {
  const Job& job = bench.runtime.job();
  if (job.nodes == 1) return {};
  const auto here = listen_here(job);
  const auto doors = bench.talk.round(here.door, kPatience);
  const auto heard = bench.talk.round(leads(job) ? called(job, doors_in(doors), here.door) : "", kPatience);
  const auto calls = calls_in(heard);
  note(calls, unpack_door(doors.texts.at(0)), bench.known);
  if (!bench.speaks()) return {};
  Findings findings;
  if (calls.count > 0) findings = judge_reach(calls.unreached, calls.count);
  if (!heard.why.empty()) findings.push_back(silence(bench, heard));
  return findings;
}

}  // namespace lockstep::doctor
