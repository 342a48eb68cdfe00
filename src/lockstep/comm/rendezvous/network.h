#pragma once
// This machine's network: the address at which other ranks reach it, name lookups with a timeout, sockets,
// and the limit of open files.

#include <netdb.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/launch/identify.h"

namespace lockstep::comm {

struct NetworkAddress {
  std::string interface;
  std::string address;
  bool loopback = false;
  int bits = 0;  // of the subnet in the address
};

/// The input for the choice of an interface. network_facts() reads it from this machine.
struct NetworkFacts {
  std::string host;
  std::vector<std::string> host_addresses;  // from the host name, in the resolver's order
  std::vector<NetworkAddress> interfaces;   // those that are up
  std::string wanted;                       // GLOO_SOCKET_IFNAME: one or several names, with commas
};
NetworkFacts network_facts();

/// Where gloo binds: to a named interface, or to the address of the host name.
struct GlooInterface {
  std::string name;     // empty: binds `address`
  std::string address;  // of this rank, as other ranks reach it
};
/// Throws InputError, which names GLOO_SOCKET_IFNAME, if ranks on other nodes cannot reach the address.
GlooInterface choose_interface(const NetworkFacts& facts, bool many_nodes);
/// The same for this machine.
GlooInterface own_interface(bool many_nodes);

/// Whether the name is "127.0.0.1", "::1" or "localhost". Other names may mean the loopback on one host only.
bool names_loopback_itself(const std::string& host);
/// Whether this machine can listen on that name or address for other nodes: it has the address, which is not
/// the loopback. False if the name service does not answer in time.
bool is_own_address(const std::string& host);

struct Lookup {
  int code = 0;  // getaddrinfo's; EAI_AGAIN after the timeout
  std::shared_ptr<const addrinfo> addresses = nullptr;
};
/// Asks the name service with a timeout. Numeric addresses need no lookup.
Lookup look_up(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);
/// "10.0.0.5", in the resolver's order.
std::vector<std::string> addresses_in(const Lookup& answer);

struct Listener {
  base::Descriptor socket;
  std::uint16_t port = 0;
};
/// Listens on this address. With port 0 the kernel chooses a free port. Throws if it is not available.
Listener listen_on(const std::string& address, std::uint16_t port = 0);

/// Tries to connect to any address of that name. Nothing at the deadline; then `why` has the last reason.
base::Descriptor connect_to(const std::string& host, std::uint16_t port, const base::Deadline& deadline,
                            std::string& why);

/// Raises this process's limit of open files if needed, as far as the system allows. Returns the limit.
uint64_t make_room_for_files(uint64_t files);
/// How many files a rank of this job may need: gloo has a connection to each rank, and so has rank 0's store.
uint64_t files_for(const Job& job);
/// Throws InputError if the limit is too low for gloo's connections.
void check_room_for_gloo(const Job& job);

}  // namespace lockstep::comm
