#pragma once
// Which interfaces and addresses the nodes have, which of them gloo and NCCL take, and what speaks against
// it.

#include <string>
#include <vector>

#include "lockstep/comm/meet/interface.h"
#include "lockstep/launch/job.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

/// What one rank sees of its node's network.
struct RankNetwork {
  int rank = 0;
  int node = 0;
  bool leads = true;  // the first rank of its node
  std::string host;
  std::vector<std::string> host_addresses;
  std::vector<comm::NetworkAddress> interfaces;
  std::string gloo_wanted, nccl_wanted;  // GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME
  std::string gloo;                      // the address that gloo takes; empty where it takes none
  std::string refused, remedy;           // why not

  /// The interface of an address; null where none of this node has it.
  const comm::NetworkAddress* interface_of(const std::string& address) const;
};

RankNetwork own_network(const Job& job);
/// The same of made up facts.
RankNetwork network_of(const Job& job, const comm::NetworkFacts& facts, const std::string& nccl_wanted);

std::string pack(const RankNetwork& network);
RankNetwork unpack_network(const std::string& text);

/// The interface whose address NCCL would take for its sockets and its bootstrap, as NCCL 2 chooses; empty
/// where there is none.
std::string nccl_interface(const RankNetwork& network);

/// "10.0.1.5/16" -> "10.0.0.0/16": the addresses that are reached without a router.
std::string subnet_of(const comm::NetworkAddress& address);

/// Of the ranks that were heard, in rank order.
Findings judge_networks(const std::vector<RankNetwork>& networks, int nodes);

}  // namespace lockstep::doctor
