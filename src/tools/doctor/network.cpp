// The checks interfaces and reach: which addresses the nodes have, and whether they reach each other there.
#include "tools/doctor/measure.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/network.h"
#include "tools/doctor/rules.h"
#include "tools/doctor/session.h"

namespace lockstep::doctor {
namespace {

using comm::NetworkAddress;
using Networks = std::vector<RankNetwork>;
using Milliseconds = std::chrono::milliseconds;

constexpr size_t kDrawnNodes = 16, kFewNodes = 16, kNamedFailures = 4;
constexpr Milliseconds kConnect{3000};
constexpr const char* kGloo = "GLOO_SOCKET_IFNAME";
constexpr const char* kNccl = "NCCL_SOCKET_IFNAME";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// by the names that InfiniBand, Slingshot and Omni-Path give their interfaces
bool is_fabric(const std::string& interface) {
  return std::ranges::any_of(std::array{"ib", "hsn", "hfi", "opa"},
                             [&](const char* prefix) { return interface.starts_with(prefix); });
}

bool is_ipv4(const std::string& address) {
  return address.find(':') == std::string::npos;
}

// The first rank of each node.
Networks first_of_nodes(const Networks& networks) {
  std::map<int, RankNetwork> by_node;
  for (const auto& network : networks) by_node.emplace(network.node, network);
  Networks first;
  for (auto& [node, network] : by_node) first.push_back(std::move(network));
  return first;
}

// "n1: eth0 10.0.0.5/24 (gloo), lo 127.0.0.1/8"
std::string drawing_of(const Networks& nodes) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(nodes.size(), kDrawnNodes); ++i) {
    std::vector<std::string> parts;
    for (const auto& entry : nodes[i].interfaces)
      parts.push_back(format("{} {}/{}{}", entry.interface, entry.address, entry.bits,
                             entry.address == nodes[i].gloo ? " (gloo)" : ""));
    lines.push_back(
        format("{}: {}", nodes[i].host, parts.empty() ? "no interface is up" : base::join(parts, ", ")));
  }
  if (nodes.size() > kDrawnNodes) lines.push_back(format("and {} more", nodes.size() - kDrawnNodes));
  return base::join(lines, "\n");
}

void add_subnets(Findings& findings, const Networks& nodes) {
  std::map<std::string, std::vector<std::string>> subnets;
  for (const auto& network : nodes)
    for (const auto& entry : network.interfaces)
      if (entry.address == network.gloo)
        subnets[subnet_of(entry)].push_back(format("{} ({})", network.host, entry.interface));
  if (subnets.size() < 2) return;
  std::vector<std::string> parts;
  for (const auto& [subnet, hosts] : subnets)
    parts.push_back(format("{} on {}{}", subnet, hosts.front(),
                           hosts.size() > 1 ? format(" and {} more", hosts.size() - 1) : ""));
  findings.push_back(
      warning("gloo's addresses are in different subnets: " + base::join(parts, ", "),
              format("if no router connects them, set {} to an interface that all nodes have in one network",
                     kGloo)));
}

// A fabric's interface that every node has and gloo does not use.
void add_unused_fabric(Findings& findings, const Networks& nodes) {
  std::map<std::string, size_t> count;
  for (const auto& network : nodes) {
    if (is_fabric(network.gloo_interface())) return;
    std::set<std::string> own;
    for (const auto& entry : network.interfaces)
      if (is_fabric(entry.interface) && is_ipv4(entry.address)) own.insert(entry.interface);
    for (const auto& name : own) ++count[name];
  }
  const auto common =
      std::ranges::find_if(count, [&](const auto& entry) { return entry.second == nodes.size(); });
  if (common != count.end())
    findings.push_back(warning(format("gloo uses {}, and every node has the faster {}",
                                      nodes.front().gloo_interface(), common->first),
                               format("set {}={} on all ranks", kGloo, common->first)));
}

// Where gloo or NCCL finds no interface.
Findings refused_choices(const Networks& networks) {
  std::vector<std::pair<int, Finding>> found;
  for (const auto& network : networks) {
    if (!network.refused.empty()) found.emplace_back(network.rank, failure(network.refused, network.remedy));
    if (!network.nccl_wanted.empty() && nccl_interface(network).empty())
      found.emplace_back(network.rank, failure(format("{} is '{}', and no interface that is up matches",
                                                      kNccl, base::printable(network.nccl_wanted)),
                                               format("unset {}, or set it to one of those below", kNccl)));
  }
  return of_ranks(found, networks.size());
}

std::string names_of(const Networks& nodes, std::string (*name)(const RankNetwork&)) {
  std::set<std::string> names;
  for (const auto& network : nodes) names.insert(name(network));
  names.erase("");
  return names.empty() ? "none" : base::join({names.begin(), names.end()}, ", ");
}

// "ib", "=eth0", "^docker,lo": prefixes, whole names, or neither.
const NetworkAddress* first_match(const RankNetwork& network, std::string wish) {
  const bool none_of = wish.starts_with('^');
  if (none_of) wish.erase(0, 1);
  const bool whole = wish.starts_with('=');
  if (whole) wish.erase(0, 1);
  for (const auto& entry : network.interfaces) {
    const bool named = std::ranges::any_of(base::split(wish, ','), [&](const std::string& one) {
      const auto name = one.substr(0, one.find(':'));
      return !name.empty() && (whole ? entry.interface == name : entry.interface.starts_with(name));
    });
    if (named != none_of) return &entry;
  }
  return nullptr;
}

std::shared_ptr<const addrinfo> numeric(const std::string& address, int port) {
  const auto found = comm::look_up(address, static_cast<std::uint16_t>(port), kConnect);
  if (found.code != 0) throw Error(format("'{}' is not an address", address), "lockstep doctor");
  return found.addresses;
}

base::Descriptor socket_for(const addrinfo& address, int flags) {
  return base::Descriptor(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

int error_of(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
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
    if (const auto* found = first_match(network, wish)) return found->interface;
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

Findings network_findings(const Networks& networks, int nodes) {
  Findings findings = refused_choices(networks);
  const auto first = first_of_nodes(networks);
  if (nodes > 1) {
    add_subnets(findings, first);
    add_unused_fabric(findings, first);
  }
  const auto nccl = names_of(first, nccl_interface);
  const auto gloo = names_of(first, [](const RankNetwork& network) { return network.gloo_interface(); });
  if (findings.empty())
    findings.push_back(ok(nodes == 1 ? format("one node: gloo uses the loopback; NCCL would use {}", nccl)
                                     : format("gloo uses {} on {} nodes; NCCL would use {} for its sockets",
                                              gloo, nodes, nccl)));
  findings.front().drawing = drawing_of(first);
  return findings;
}

std::pair<base::Descriptor, int> listen_at(const std::string& address) {
  const auto place = numeric(address, 0);
  auto socket = socket_for(*place, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!socket || ::bind(socket.number(), place->ai_addr, place->ai_addrlen) != 0 ||
      ::listen(socket.number(), SOMAXCONN) != 0 ||
      ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    throw Error(format("cannot listen at {}: {}", address, std::strerror(errno)), "lockstep doctor");
  const int port = own.ss_family == AF_INET ? ntohs(reinterpret_cast<sockaddr_in&>(own).sin_port)
                                            : ntohs(reinterpret_cast<sockaddr_in6&>(own).sin6_port);
  return {std::move(socket), port};
}

std::vector<std::string> connect_to(const std::vector<Listener>& listeners, Milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::string> failed(listeners.size(), format("no answer in {} s", timeout.count() / 1000.0));
  std::vector<base::Descriptor> sockets;
  std::vector<pollfd> waiting;  // by listener; poll() skips a negative number
  for (size_t i = 0; i < listeners.size(); ++i) {
    const auto address = numeric(listeners[i].address, listeners[i].port);
    sockets.push_back(socket_for(*address, SOCK_NONBLOCK));
    const int begun = ::connect(sockets[i].number(), address->ai_addr, address->ai_addrlen);
    if (begun != 0 && errno != EINPROGRESS) failed[i] = std::strerror(errno), sockets[i].close();
    waiting.push_back({sockets[i].number(), POLLOUT, 0});
  }
  const auto open = [](const pollfd& one) { return one.fd >= 0; };
  for (const auto end = Clock::now() + timeout; std::ranges::any_of(waiting, open) && Clock::now() < end;) {
    ::poll(waiting.data(), waiting.size(), 50);
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].fd < 0 || !waiting[i].revents) continue;
      const int error = error_of(waiting[i].fd);
      failed[i] = error == 0 ? "" : std::strerror(error);
      waiting[i].fd = -1;
    }
  }
  return failed;
}

std::vector<size_t> partners_of(size_t node, size_t count) {
  std::set<size_t> partners;
  if (count <= kFewNodes) {
    for (size_t other = 0; other < count; ++other) partners.insert(other);
  } else {
    partners = {0, (node + 1) % count, (node + count - 1) % count};
  }
  partners.erase(node);
  return {partners.begin(), partners.end()};
}

Finding reach_finding(const std::vector<Unreached>& unreached, size_t tried) {
  if (unreached.empty()) return ok(format("the nodes reach each other: {} connections tried", tried));
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(unreached.size(), kNamedFailures); ++i) {
    const auto& [from, to, why] = unreached[i];
    texts.push_back(
        format("{} does not reach {} at {} port {}: {}", from, to.host, to.address, to.port, why));
  }
  if (unreached.size() > kNamedFailures)
    texts.push_back(format("and {} more", unreached.size() - kNamedFailures));
  return failure(
      base::join(texts, "; "),
      "set GLOO_SOCKET_IFNAME to an interface in a network that the nodes share; if it is the right one, a "
      "firewall between the nodes must let all ports of ip_local_port_range through");
}

void measure_interfaces(Session& session, Findings& findings) {
  const Job& job = session.job();
  const auto own = [&] { return network_of(job, comm::network_facts(variable(kGloo)), variable(kNccl)); };
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

// Whatever the backend, the ranks first meet at rank 0's address.
void measure_reach(Session& session, Findings& findings) {
  const Job& job = session.job();
  if (job.nodes == 1) return;
  base::Descriptor listening;
  const auto listen = [&]() -> Session::Json {
    const auto network = network_of(job, comm::network_facts(variable(kGloo)), "");
    if (!session.is_first_of_node() || network.gloo.empty()) return nullptr;
    auto [socket, port] = listen_at(network.gloo);
    listening = std::move(socket);
    return Listener{job.host, network.gloo, port};
  };
  const auto by_rank = session.round(listen, [](const auto& values) { return values; });
  std::vector<Listener> listeners;
  size_t own = by_rank.size();
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (static_cast<int>(rank) == job.rank) own = listeners.size();
    if (!by_rank[rank].is_null()) listeners.push_back(by_rank[rank].get<Listener>());
  }
  const auto connect = [&]() -> Session::Json {
    if (!session.is_first_of_node()) return {{"tried", 0}, {"unreached", Session::Json::array()}};
    std::vector<Listener> wanted;
    for (const size_t partner : partners_of(own, listeners.size())) wanted.push_back(listeners[partner]);
    std::vector<Unreached> unreached;
    const auto failed = connect_to(wanted, kConnect);
    for (size_t i = 0; i < wanted.size(); ++i)
      if (!failed[i].empty()) unreached.push_back({job.host, wanted[i], failed[i]});
    return {{"tried", wanted.size()}, {"unreached", unreached}};
  };
  const auto problems =
      session.round(connect, [&](const std::vector<Session::Json>& values) -> Session::Json {
        std::vector<Unreached> unreached;
        size_t tried = 0;
        for (const auto& value : values) {
          tried += value["tried"].get<size_t>();
          for (const auto& one : value["unreached"]) unreached.push_back(one.get<Unreached>());
        }
        if (tried > 0) findings.push_back(reach_finding(unreached, tried));
        std::string store;
        if (by_rank[0].is_null()) store = "the ranks meet at rank 0's address, and it has none";
        for (const auto& one : unreached)
          if (!by_rank[0].is_null() && Session::Json(one.to) == by_rank[0])
            store = format("the ranks meet at rank 0's address, which {} does not reach", one.from);
        return {{"gloo", unreached.empty() ? "" : "the nodes do not reach each other"}, {"store", store}};
      });
  if (session.gloo_problem.empty()) session.gloo_problem = problems["gloo"];
  session.store_problem = problems["store"];
}

}  // namespace lockstep::doctor
