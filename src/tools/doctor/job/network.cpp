#include "tools/doctor/job/network.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/grouped.h"

namespace lockstep::doctor {
namespace {

using comm::NetworkAddress;
using Networks = std::vector<RankNetwork>;

constexpr size_t kDrawnNodes = 16;
constexpr const char* kGloo = "GLOO_SOCKET_IFNAME";
constexpr const char* kNccl = "NCCL_SOCKET_IFNAME";
// By the names that InfiniBand, Slingshot and Omni-Path give their interfaces.
constexpr std::array<const char*, 4> kFabrics = {"ib", "hsn", "hfi", "opa"};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_fabric(const std::string& interface) {
  return std::any_of(kFabrics.begin(), kFabrics.end(),
                     [&](const char* prefix) { return interface.starts_with(prefix); });
}

bool is_ipv4(const std::string& address) {
  return address.find(':') == std::string::npos;
}

// One a node, in the nodes' order.
Networks leaders(const Networks& networks) {
  std::map<int, RankNetwork> by_node;
  for (const auto& network : networks) {
    const auto [found, is_new] = by_node.emplace(network.node, network);
    if (!is_new && network.leads) found->second = network;
  }
  Networks first;
  for (auto& [node, network] : by_node) first.push_back(std::move(network));
  return first;
}

std::string gloo_interface(const RankNetwork& network) {
  const auto* taken = network.interface_of(network.gloo);
  return taken ? taken->interface : "";
}

// "n1: eth0 10.0.0.5/24 (gloo), lo 127.0.0.1/8"
std::string line_of(const RankNetwork& network) {
  std::vector<std::string> parts;
  for (const auto& entry : network.interfaces) {
    const bool taken = entry.address == network.gloo;
    parts.push_back(format("{} {}/{}{}", entry.interface, entry.address, entry.bits, taken ? " (gloo)" : ""));
  }
  return format("{}: {}", network.host, parts.empty() ? "no interface is up" : base::join(parts, ", "));
}

std::string drawing_of(const Networks& nodes) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(nodes.size(), kDrawnNodes); ++i) lines.push_back(line_of(nodes[i]));
  if (nodes.size() > kDrawnNodes) lines.push_back(format("and {} more", nodes.size() - kDrawnNodes));
  return base::join(lines, "\n");
}

void add_refusals(Findings& findings, const Networks& networks) {
  launch::Grouped refused;
  std::map<std::string, std::string> remedies;
  for (const auto& network : networks) {
    if (network.refused.empty()) continue;
    launch::add(refused, network.refused, network.rank);
    remedies.emplace(network.refused, network.remedy);
  }
  for (const auto& [text, ranks] : refused)
    findings.push_back(fail("gloo: " + launch::with_ranks(text, ranks, networks.size()), remedies[text]));
}

void add_subnets(Findings& findings, const Networks& nodes) {
  std::map<std::string, std::vector<std::string>> subnets;
  for (const auto& network : nodes) {
    if (const auto* taken = network.interface_of(network.gloo))
      subnets[subnet_of(*taken)].push_back(format("{} ({})", network.host, taken->interface));
  }
  if (subnets.size() < 2) return;
  std::string text;
  for (const auto& [subnet, hosts] : subnets)
    text += format("{}{} on {}{}", text.empty() ? "" : ", ", subnet, hosts.front(),
                   hosts.size() > 1 ? format(" and {} more", hosts.size() - 1) : "");
  findings.push_back(
      warn("gloo's addresses lie in different subnets: " + text,
           format("where no router joins them, set {} to an interface that all nodes have in one "
                  "network",
                  kGloo)));
}

// The name of a fabric's interface that every node has, and gloo does not take.
std::string unused_fabric(const Networks& nodes) {
  std::map<std::string, size_t> count;
  for (const auto& network : nodes) {
    if (is_fabric(gloo_interface(network))) return "";
    std::set<std::string> own;
    for (const auto& entry : network.interfaces)
      if (is_fabric(entry.interface) && is_ipv4(entry.address)) own.insert(entry.interface);
    for (const auto& name : own) ++count[name];
  }
  for (const auto& [name, nodes_with_it] : count)
    if (nodes_with_it == nodes.size()) return name;
  return "";
}

void add_fabric(Findings& findings, const Networks& nodes) {
  const auto fabric = unused_fabric(nodes);
  if (fabric.empty()) return;
  findings.push_back(
      warn(format("gloo takes {}, and every node has the faster {}", gloo_interface(nodes.front()), fabric),
           format("set {}={} on all ranks", kGloo, fabric)));
}

void add_nccl(Findings& findings, const Networks& networks) {
  launch::Grouped nowhere;
  for (const auto& network : networks) {
    if (network.nccl_wanted.empty() || !nccl_interface(network).empty()) continue;
    launch::add(
        nowhere,
        format("{} is '{}', and no interface that is up fits", kNccl, base::printable(network.nccl_wanted)),
        network.rank);
  }
  for (const auto& [text, ranks] : nowhere)
    findings.push_back(fail("NCCL: " + launch::with_ranks(text, ranks, networks.size()),
                            format("unset {}, or set it to one of those below", kNccl)));
}

std::string names_of(const Networks& nodes, std::string (*name)(const RankNetwork&)) {
  std::set<std::string> names;
  for (const auto& network : nodes) names.insert(name(network));
  names.erase("");
  return names.empty() ? "none" : base::join({names.begin(), names.end()}, ", ");
}

Finding summary_of_networks(const Networks& nodes, int count) {
  const auto nccl = names_of(nodes, nccl_interface);
  if (count == 1) return fine(format("one node: gloo stays on the loopback; NCCL would take {}", nccl));
  return fine(format("gloo takes {} on {} nodes; NCCL would take {} for its sockets",
                     names_of(nodes, gloo_interface), nodes.size(), nccl));
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= list.size();) {
    const auto comma = std::min(list.find(',', at), list.size());
    if (comma > at) parts.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

// "ib", "=eth0", "^docker,lo": prefixes, whole names, or neither.
const NetworkAddress* first_fitting(const RankNetwork& network, std::string wish) {
  const bool none_of = wish.starts_with('^');
  if (none_of) wish.erase(0, 1);
  const bool whole = wish.starts_with('=');
  if (whole) wish.erase(0, 1);
  const auto wanted = split(wish);
  for (const auto& entry : network.interfaces) {
    const bool named = std::any_of(wanted.begin(), wanted.end(), [&](const std::string& one) {
      const auto name = one.substr(0, one.find(':'));
      return whole ? entry.interface == name : entry.interface.starts_with(name);
    });
    if (named != none_of) return &entry;
  }
  return nullptr;
}

std::string pack_interfaces(const std::vector<NetworkAddress>& interfaces) {
  std::vector<std::string> parts;
  for (const auto& entry : interfaces)
    parts.insert(parts.end(),
                 {entry.interface, entry.address, entry.loopback ? "1" : "0", std::to_string(entry.bits)});
  return base::pack_texts(parts);
}

std::vector<NetworkAddress> unpack_interfaces(const std::string& text) {
  const auto parts = base::unpack_texts(text);
  std::vector<NetworkAddress> interfaces;
  for (size_t i = 0; i + 3 < parts.size(); i += 4)
    interfaces.push_back({parts[i], parts[i + 1], parts[i + 2] == "1", std::stoi(parts[i + 3])});
  return interfaces;
}

}  // namespace

const NetworkAddress* RankNetwork::interface_of(const std::string& address) const {
  const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                  [&](const NetworkAddress& entry) { return entry.address == address; });
  return found == interfaces.end() ? nullptr : &*found;
}

RankNetwork network_of(const Job& job, const comm::NetworkFacts& facts, const std::string& nccl_wanted) {
  RankNetwork network{.rank = job.rank,
                      .node = job.node_rank,
                      .leads = job.local_rank == 0,
                      .host = facts.host,
                      .host_addresses = facts.host_addresses,
                      .interfaces = facts.interfaces,
                      .gloo_wanted = facts.wanted,
                      .nccl_wanted = nccl_wanted,
                      .gloo = {},
                      .refused = {},
                      .remedy = {}};
  try {
    network.gloo = comm::choose_interface(facts, job.nodes > 1).address;
  } catch (const Error& error) {
    network.refused = error.what();
    network.remedy = error.hint();
  }
  return network;
}

RankNetwork own_network(const Job& job) {
  return network_of(job, comm::network_facts(variable(kGloo)), variable(kNccl));
}

std::string pack(const RankNetwork& network) {
  return base::pack_texts({std::to_string(network.rank), std::to_string(network.node),
                           network.leads ? "1" : "0", network.host, base::pack_texts(network.host_addresses),
                           pack_interfaces(network.interfaces), network.gloo_wanted, network.nccl_wanted,
                           network.gloo, network.refused, network.remedy});
}

RankNetwork unpack_network(const std::string& text) {
  const auto parts = base::unpack_texts(text);
  if (parts.size() != 11) throw Error("these are no facts of a network", "lockstep doctor");
  return {.rank = std::stoi(parts[0]),
          .node = std::stoi(parts[1]),
          .leads = parts[2] == "1",
          .host = parts[3],
          .host_addresses = base::unpack_texts(parts[4]),
          .interfaces = unpack_interfaces(parts[5]),
          .gloo_wanted = parts[6],
          .nccl_wanted = parts[7],
          .gloo = parts[8],
          .refused = parts[9],
          .remedy = parts[10]};
}

// The order of NCCL's ncclFindInterfaces (src/misc/socket.cc).
std::string nccl_interface(const RankNetwork& network) {
  std::vector<std::string> wishes = {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"};
  if (!network.nccl_wanted.empty()) wishes = {network.nccl_wanted};
  for (const auto& wish : wishes)
    if (const auto* found = first_fitting(network, wish)) return found->interface;
  return "";
}

std::string subnet_of(const NetworkAddress& address) {
  const int family = is_ipv4(address.address) ? AF_INET : AF_INET6;
  std::array<unsigned char, 16> bytes{};
  if (::inet_pton(family, address.address.c_str(), bytes.data()) != 1) return address.address;
  for (int bit = address.bits; bit < 128; ++bit)
    bytes[static_cast<size_t>(bit / 8)] &= static_cast<unsigned char>(~(0x80U >> (bit % 8)));
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(family, bytes.data(), text.data(), text.size());
  return format("{}/{}", text.data(), address.bits);
}

Findings judge_networks(const Networks& networks, int nodes) {
  Findings findings;
  const auto first = leaders(networks);
  add_refusals(findings, networks);
  add_nccl(findings, networks);
  if (nodes > 1) {
    add_subnets(findings, first);
    add_fabric(findings, first);
  }
  if (findings.empty()) findings.push_back(summary_of_networks(first, nodes));
  findings.front().drawing = drawing_of(first);
  return findings;
}

}  // namespace lockstep::doctor
