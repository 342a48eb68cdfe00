// The checks of the nodes' network: interfaces as every rank sees them, addresses as the others call them.
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "tools/doctor/job/active.h"
#include "tools/doctor/job/network.h"
#include "tools/doctor/job/reach.h"

namespace lockstep::doctor {
namespace {

using namespace std::chrono_literals;

constexpr auto kNetworkRound = 8s;
constexpr auto kCall = 3s;
constexpr const char* kNoDoor = "-";  // of a node that cannot be called, and calls

std::string pack_door(const Door& door) {
  return base::pack_texts({door.host, door.address, std::to_string(door.port)});
}

std::optional<Door> unpack_door(const std::optional<std::string>& text) {
  if (!text || text->empty() || *text == kNoDoor) return std::nullopt;
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
    here.door = pack_door(Door{job.host, network.gloo, port});
  } catch (const Error&) {
    here.door.clear();  // an address that was there a moment ago
  }
  return here;
}

// By rank: the doors that it is to call.
std::vector<std::string> calls_to_make(const Texts& texts) {
  std::vector<Door> doors;
  std::vector<size_t> own(texts.size());  // of a node without a door: the first one's
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto door = unpack_door(texts[rank]);
    if (!door) continue;
    own[rank] = doors.size();
    doors.push_back(*door);
  }
  std::vector<std::string> replies;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::vector<std::string> wanted;
    if (!texts[rank].value_or("").empty())
      for (const auto other : calls_of(own[rank], doors.size())) wanted.push_back(pack_door(doors.at(other)));
    replies.push_back(base::pack_texts(wanted));
  }
  return replies;
}

// What this node did not reach, packed, and how many it called.
std::string called(const Job& job, const std::string& asked) {
  std::vector<Door> wanted;
  if (!asked.empty())
    for (const auto& door : base::unpack_texts(asked)) wanted.push_back(*unpack_door(door));
  std::vector<std::string> parts = {std::to_string(wanted.size())};
  for (const auto& [which, why] : call(wanted, kCall))
    parts.insert(parts.end(), {job.host, pack_door(wanted[which]), why});
  return base::pack_texts(parts);
}

struct Calls {
  std::vector<Unreached> unreached;
  size_t count = 0;
};

Calls calls_in(const Texts& texts) {
  Calls calls;
  for (const auto& text : texts) {
    if (!text || text->empty()) continue;
    const auto parts = base::unpack_texts(*text);
    calls.count += static_cast<size_t>(std::stoul(parts.at(0)));
    for (size_t i = 1; i + 2 < parts.size(); i += 3)
      calls.unreached.push_back({parts[i], *unpack_door(parts[i + 1]), parts[i + 2]});
  }
  return calls;
}

// Why no backend opens, as all ranks are to know: gloo, and any. Whatever the backend, the ranks meet at
// rank 0's address first.
std::vector<std::string> hindrances(const Calls& calls, const std::optional<Door>& first) {
  std::string no_gloo, no_store;
  if (!calls.unreached.empty()) no_gloo = "the nodes do not reach each other";
  if (!first) no_store = "the ranks meet at rank 0's address, and it has none to take";
  for (const auto& one : calls.unreached)
    if (first && one.door.address == first->address && one.door.port == first->port)
      no_store = format("the ranks meet at rank 0's address, which {} does not reach", one.from);
  return {base::pack_texts({no_gloo, no_store})};
}

void note(const std::string& packed, Known& known) {
  if (packed.empty()) return;
  const auto parts = base::unpack_texts(packed);
  if (known.no_gloo.empty()) known.no_gloo = parts.at(0);
  if (!parts.at(1).empty()) known.no_store = parts.at(1);
}

}  // namespace

Findings run_interfaces(const Bench& bench) {
  const Job& job = bench.runtime.job();
  std::vector<RankNetwork> networks;
  const auto heard = bench.talk.round(pack(own_network(job)), kNetworkRound, [&](const Texts& texts) {
    std::string refused;
    for (const auto& text : texts) {
      if (!text) continue;
      networks.push_back(unpack_network(*text));
      if (!networks.back().refused.empty()) refused = "it has no address to take";
    }
    return std::vector{refused};
  });
  bench.known.no_gloo = heard.reply;
  if (!bench.speaks()) return {};
  auto findings = networks.empty() ? Findings{} : judge_networks(networks, job.nodes);
  if (!heard.why.empty()) findings.push_back(silence(bench, heard));
  return findings;
}

Findings run_reach(const Bench& bench) {
  const Job& job = bench.runtime.job();
  if (job.nodes == 1) return {};
  const auto here = listen_here(job);
  const auto own = leads(job) && here.door.empty() ? kNoDoor : here.door;
  std::optional<Door> first;
  const auto doors = bench.talk.round(own, kNetworkRound, [&](const Texts& texts) {
    first = unpack_door(texts.at(0));
    return calls_to_make(texts);
  });
  Calls calls;
  const auto heard =
      bench.talk.round(leads(job) ? called(job, doors.reply) : "", kNetworkRound, [&](const Texts& texts) {
        calls = calls_in(texts);
        return hindrances(calls, first);
      });
  note(heard.reply, bench.known);
  if (!bench.speaks()) return {};
  Findings findings;
  if (calls.count > 0) findings = judge_reach(calls.unreached, calls.count);
  if (!heard.why.empty()) findings.push_back(silence(bench, heard));
  return findings;
}

}  // namespace lockstep::doctor
