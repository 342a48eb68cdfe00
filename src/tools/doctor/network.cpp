// The checks interfaces and reach: which addresses the nodes have, and whether they reach each other there.
#include <algorithm>
#include <array>
#include <future>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/launch/variables.h"
#include "tools/doctor/session.h"

namespace lockstep::doctor {
namespace {

using comm::NetworkAddress;
using Networks = std::vector<RankNetwork>;

constexpr size_t kDrawnNodes = 16, kFewNodes = 16, kNamedFailures = 4;
constexpr std::chrono::seconds kConnect{3};
constexpr const char* kGloo = "GLOO_SOCKET_IFNAME";
constexpr const char* kNccl = "NCCL_SOCKET_IFNAME";

// --- interfaces ---

// By the names that InfiniBand, Slingshot and Omni-Path give their interfaces.
bool is_fabric(const std::string& interface) {
  return std::ranges::any_of(std::array{"ib", "hsn", "hfi", "opa"},
                             [&](const char* prefix) { return interface.starts_with(prefix); });
}

// "n1: eth0 10.0.0.5/24 (gloo), lo 127.0.0.1/8"
std::string drawing_of(const Networks& networks) {
  std::vector<std::string> lines;
  std::set<int> drawn;
  for (const auto& node : networks) {
    if (!drawn.insert(node.node).second) continue;
    std::vector<std::string> parts;
    for (const auto& entry : node.interfaces)
      parts.push_back(format("{} {}/{}{}", entry.interface, entry.address, entry.bits,
                             entry.address == node.gloo ? " (gloo)" : ""));
    lines.push_back(
        format("{}: {}", node.host, parts.empty() ? "no interface is up" : base::join(parts, ", ")));
  }
  return some_of(lines, kDrawnNodes, "\n");
}

// A fabric's interface that every node has and gloo does not use.
void add_unused_fabric(Findings& findings, const Networks& networks) {
  std::map<std::string, size_t> count;
  for (const auto& network : networks) {
    if (is_fabric(network.gloo_interface())) return;
    std::set<std::string> own;
    for (const auto& entry : network.interfaces)
      if (is_fabric(entry.interface) && entry.address.find(':') == std::string::npos)  // IPv4
        own.insert(entry.interface);
    for (const auto& name : own) ++count[name];
  }
  for (const auto& [name, number] : count)
    if (number == networks.size())
      return findings.push_back(warning(
          format("gloo uses {}, but every node has the faster {}", networks.front().gloo_interface(), name),
          format("set {}={} on all ranks", kGloo, name)));
}

// Where gloo or NCCL finds no interface.
Findings refused_choices(const Networks& networks) {
  std::vector<std::pair<int, Finding>> found;
  for (const auto& network : networks) {
    if (!network.refused.empty()) found.emplace_back(network.rank, failure(network.refused, network.remedy));
    if (!network.nccl_wanted.empty() && nccl_interface(network).empty())
      found.emplace_back(network.rank, failure(format("{} is '{}', but no interface matches", kNccl,
                                                      base::printable(network.nccl_wanted)),
                                               format("unset {}, or set it to one listed below", kNccl)));
  }
  return of_ranks(found, networks.size());
}

std::string names_of(const Networks& networks, std::string (*name)(const RankNetwork&)) {
  std::set<std::string> names;
  for (const auto& network : networks) names.insert(name(network));
  names.erase("");
  return names.empty() ? "none" : base::join({names.begin(), names.end()}, ", ");
}

// `wish`, as NCCL_SOCKET_IFNAME: "ib" a prefix, "=eth0" a whole name, "^docker,lo" neither of these prefixes.
std::string first_match(const RankNetwork& network, std::string wish) {
  const bool none_of = wish.starts_with('^');
  if (none_of) wish.erase(0, 1);
  const bool whole = wish.starts_with('=');
  if (whole) wish.erase(0, 1);
  for (const auto& entry : network.interfaces) {
    const bool named = std::ranges::any_of(base::split(wish, ','), [&](const std::string& one) {
      const auto name = one.substr(0, one.find(':'));
      return !name.empty() && (whole ? entry.interface == name : entry.interface.starts_with(name));
    });
    if (named != none_of) return entry.interface;
  }
  return "";
}

// --- connections ---

/// Where a node listens.
struct Place {
  int rank = 0;
  std::string host, address;
  int port = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Place, rank, host, address, port)

// All other nodes of a few, otherwise the neighbors and node 0.
std::set<size_t> partners_of(size_t node, size_t count) {
  std::set<size_t> partners = {0, (node + 1) % count, (node + count - 1) % count};
  for (size_t other = 0; count <= kFewNodes && other < count; ++other) partners.insert(other);
  partners.erase(node);
  return partners;
}

// Connects to all at once. Returns a line for each connection that failed.
std::vector<std::string> failed_connections(const std::vector<Place>& places, const std::string& from) {
  const base::Deadline deadline(kConnect);
  std::vector<std::future<std::string>> attempts;
  for (const Place& place : places)
    attempts.push_back(std::async(std::launch::async, [&place, deadline] {
      std::string why = format("no answer in {} s", kConnect.count());
      const auto port = static_cast<std::uint16_t>(place.port);
      return comm::connect_to(place.address, port, deadline, why) ? "" : why;
    }));
  std::vector<std::string> failed;
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& to = places[i];
    if (const auto why = attempts[i].get(); !why.empty())
      failed.push_back(
          format("{} does not reach {} at {} port {}: {}", from, to.host, to.address, to.port, why));
  }
  return failed;
}

Finding reach_finding(const std::vector<std::string>& failed, size_t tried) {
  if (failed.empty()) return ok(format("the nodes reach each other: {} connections tried", tried));
  return failure(some_of(failed, kNamedFailures, "; "),
                 "set GLOO_SOCKET_IFNAME to an interface in a network that the nodes share; if it is the "
                 "right one, open all ports of ip_local_port_range in the firewall between the nodes");
}

}  // namespace

std::string RankNetwork::gloo_interface() const {
  for (const auto& entry : interfaces)
    if (entry.address == gloo) return entry.interface;
  return "";
}

RankNetwork network_of(const Job& job, const comm::NetworkFacts& facts, const std::string& nccl_wanted) {
  RankNetwork network{job.rank, job.node_rank, facts.host, facts.interfaces, nccl_wanted, {}, {}, {}};
  try {
    network.gloo = comm::choose_interface(facts, job.nodes > 1).address;
  } catch (const Error& error) {
    network.refused = error.what();
    network.remedy = error.hint();
  }
  return network;
}

// The order of NCCL's ncclFindInterfaces (src/misc/socket.cc).
std::string nccl_interface(const RankNetwork& network) {
  std::vector<std::string> wishes = {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"};
  if (!network.nccl_wanted.empty()) wishes = {network.nccl_wanted};
  for (const auto& wish : wishes)
    if (const auto found = first_match(network, wish); !found.empty()) return found;
  return "";
}

Findings network_findings(const Networks& networks, int nodes) {
  Findings findings = refused_choices(networks);
  if (nodes > 1) add_unused_fabric(findings, networks);
  const auto nccl = names_of(networks, nccl_interface);
  const auto gloo = names_of(networks, [](const RankNetwork& network) { return network.gloo_interface(); });
  if (findings.empty())
    findings.push_back(ok(nodes == 1 ? format("one node: gloo uses the loopback; NCCL would use {}", nccl)
                                     : format("gloo uses {} on {} nodes; NCCL would use {} for its sockets",
                                              gloo, nodes, nccl)));
  findings.front().drawing = drawing_of(networks);
  return findings;
}

void measure_interfaces(Session& session, Findings& findings) {
  const Job& job = session.job();
  const auto own = [&] {
    return network_of(job, comm::network_facts(), launch::text_of(session.settings.environment, kNccl));
  };
  session.gloo_problem = session.round(own, [&](const std::vector<Session::Json>& values) {
    std::string problem;
    Networks networks;
    for (const auto& value : values) {
      networks.push_back(value.get<RankNetwork>());
      if (!networks.back().refused.empty()) problem = "gloo has no address to use";
    }
    append(findings, network_findings(networks, job.nodes));
    return problem;
  });
}

// The first rank of each node listens at gloo's address, and connects to others. Whatever the backend, the
// ranks of a job first meet at rank 0's address.
void measure_reach(Session& session, Findings& findings) {
  const Job& job = session.job();
  if (job.nodes == 1) return;
  comm::Listener listener;
  const auto listen = [&]() -> Session::Json {
    const auto network = network_of(job, comm::network_facts(), "");
    if (!session.is_first_of_node() || network.gloo.empty()) return nullptr;
    listener = comm::listen_on(network.gloo);
    return Place{job.rank, job.host, network.gloo, listener.port};
  };
  const auto by_rank = session.round(listen, [](const auto& values) { return values; });
  std::vector<Place> places;
  for (const auto& value : by_rank)
    if (!value.is_null()) places.push_back(value.get<Place>());
  const auto own = std::ranges::find(places, job.rank, &Place::rank) - places.begin();
  const auto connect = [&]() -> Session::Json {
    std::vector<Place> partners;
    if (session.is_first_of_node() && !places.empty())
      for (const size_t partner : partners_of(static_cast<size_t>(own), places.size()))
        partners.push_back(places.at(partner));
    return {{"tried", partners.size()}, {"failed", failed_connections(partners, job.host)}};
  };
  const std::string problem =
      session.round(connect, [&](const std::vector<Session::Json>& values) -> Session::Json {
        std::vector<std::string> failed;
        size_t tried = 0;
        for (const auto& value : values) {
          tried += value["tried"].get<size_t>();
          for (const auto& one : value["failed"]) failed.push_back(one.get<std::string>());
        }
        if (tried > 0) findings.push_back(reach_finding(failed, tried));
        return failed.empty() ? "" : "the nodes do not reach each other";
      });
  if (session.gloo_problem.empty()) session.gloo_problem = problem;
}

}  // namespace lockstep::doctor
