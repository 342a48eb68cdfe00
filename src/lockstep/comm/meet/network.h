#pragma once
// This machine's network: the address at which other ranks reach it, name lookups that end in time, sockets
// to listen and connect with, and how many of them a process may open.

#include <netdb.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/launch/identify.h"

namespace lockstep::comm {

struct NetworkAddress {
  std::string interface;
  std::string address;
  bool loopback = false;
  int bits = 0;  // of the address that name its subnet
};

/// What the choice of an interface depends on; network_facts() reads it from this machine.
struct NetworkFacts {
  std::string host;
  std::vector<std::string> host_addresses;  // what the host name resolves to, in the resolver's order
  std::vector<NetworkAddress> interfaces;   // those that are up
  std::string wanted;                       // GLOO_SOCKET_IFNAME: a name, or several with commas
};
NetworkFacts network_facts(const std::string& wanted);

/// Where gloo binds: at a named interface, or at the host name's own address.
struct GlooInterface {
  std::string name;     // empty: bind `address`
  std::string address;  // of this rank, as others reach it
};
/// Throws InputError naming GLOO_SOCKET_IFNAME where ranks on other nodes could not reach what gloo would
/// bind.
GlooInterface choose_interface(const NetworkFacts& facts, bool many_nodes);
/// The same for this machine.
GlooInterface own_interface(bool many_nodes);

/// Whether this machine resolves that name or address to the loopback.
bool is_loopback_name(const std::string& host);
/// "127.0.0.1", "::1", "localhost": a host name may resolve to the loopback only on the host itself.
bool names_loopback_itself(const std::string& host);
/// Whether this machine can listen on that name or address; false where the name service does not answer in
/// time.
bool is_own_address(const std::string& host);

struct Lookup {
  int code = 0;  // getaddrinfo's; EAI_AGAIN where the answer did not come in time
  std::shared_ptr<const addrinfo> addresses = nullptr;
};
/// Waits no longer than that for the name service; a number is its own address.
Lookup look_up(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

struct Listener {
  base::Descriptor socket;
  std::uint16_t port = 0;
};
/// Bound to one address, never to all of them. Port 0 lets the kernel choose a free one. Throws where the
/// address or port cannot be had.
Listener listen_on(const std::string& address, std::uint16_t port = 0);

/// Tries to connect to any address of that name. Nothing at the deadline; then `why` is the last reason.
base::Descriptor connect_to(const std::string& host, std::uint16_t port,
                            std::chrono::steady_clock::time_point deadline, std::string& why);

/// Raises this process's limit of open files as far as needed and as the system lets it. Returns the limit.
uint64_t make_room_for_files(uint64_t files);
/// How many a rank of this job may need: gloo's connection to each rank, and rank 0's store one for each.
uint64_t files_for(const Job& job);
/// Throws InputError where gloo could not connect this rank to all others.
void check_room_for_gloo(const Job& job);

}  // namespace lockstep::comm
