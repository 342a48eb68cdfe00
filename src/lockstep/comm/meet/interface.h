#pragma once
// Which address other ranks can reach this one at: chosen and checked before gloo binds it.

#include <chrono>
#include <string>
#include <vector>

namespace lockstep::comm {

struct NetworkAddress {
  std::string interface;
  std::string address;
  bool loopback = false;
  int bits = 0;  // of the address that name its subnet
};

/// What the choice depends on; network_facts() reads it from this machine.
struct NetworkFacts {
  std::string host;
  std::vector<std::string> host_addresses;  // what the host name resolves to, in the resolver's order
  std::vector<NetworkAddress> interfaces;   // those that are up
  std::string wanted;                       // GLOO_SOCKET_IFNAME: a name, or several with commas
};

/// How gloo is to bind: a named interface, or the host name's own address.
struct GlooInterface {
  std::string name;     // empty: bind `address`
  std::string address;  // of this rank, as others reach it
};

constexpr std::chrono::milliseconds kNameService{5000};  // to answer

/// Throws InputError naming GLOO_SOCKET_IFNAME where ranks on other nodes could not reach what gloo would
/// bind.
GlooInterface choose_interface(const NetworkFacts& facts, bool many_nodes);

/// Whether that name or address is, as this machine resolves it, the loopback.
bool is_loopback_name(const std::string& host);
/// "127.0.0.1", "::1", "localhost": a host name may resolve to the loopback only on the host itself.
bool names_loopback_itself(const std::string& host);
/// Whether that name or address is, as this machine resolves it, one that it can listen on; false where the
/// name service does not answer in time.
bool is_own_address(const std::string& host, std::chrono::milliseconds timeout = kNameService);

/// This machine's names and addresses.
NetworkFacts network_facts(const std::string& wanted);

}  // namespace lockstep::comm
