#include "lockstep/comm/meet/interface.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::comm {
namespace {

const char* const kVariable = "GLOO_SOCKET_IFNAME";

std::string first_name(const std::string& wanted) {
  return wanted.substr(0, wanted.find(','));
}

std::string reachable_names(const NetworkFacts& facts) {
  std::string names;
  for (const auto& entry : facts.interfaces) {
    if (entry.loopback) continue;
    names += format("{}{} ({})", names.empty() ? "" : ", ", entry.interface, entry.address);
  }
  return names.empty() ? "none" : names;
}

[[noreturn]] void refuse_interface(const NetworkFacts& facts, const std::string& what) {
  throw InputError(what, format("host {}", facts.host),
                   format("set {} to an interface that the other nodes reach; up here: {}", kVariable,
                          reachable_names(facts)))
      .of(Code::network);
}

bool is_loopback(const NetworkFacts& facts, const std::string& address) {
  if (address.rfind("127.", 0) == 0 || address == "::1") return true;
  return std::any_of(facts.interfaces.begin(), facts.interfaces.end(),
                     [&](const auto& entry) { return entry.loopback && entry.address == address; });
}

const NetworkAddress* find_interface(const NetworkFacts& facts, const std::string& name) {
  const NetworkAddress* found = nullptr;
  for (const auto& entry : facts.interfaces) {
    if (entry.interface != name) continue;
    if (!found || (found->address.find(':') != std::string::npos)) found = &entry;  // IPv4 before IPv6
  }
  return found;
}

GlooInterface named(const NetworkFacts& facts, bool many_nodes) {
  const std::string name = first_name(facts.wanted);
  const NetworkAddress* found = find_interface(facts, name);
  if (!found) refuse_interface(facts, format("{} is '{}', and there is no such interface", kVariable, name));
  if (many_nodes && found->loopback) {
    refuse_interface(
        facts, format("{} is '{}', the loopback, which ranks on other nodes cannot reach", kVariable, name));
  }
  return {facts.wanted, found->address};
}

bool is_local(const NetworkFacts& facts, const std::string& address) {
  return std::any_of(facts.interfaces.begin(), facts.interfaces.end(),
                     [&](const auto& entry) { return entry.address == address; });
}

// As gloo does it: the first address of the host name that this machine can bind. Where there is none, gloo
// falls back to the loopback without a word, and a job of several nodes hangs.
GlooInterface of_host_name(const NetworkFacts& facts) {
  if (facts.host_addresses.empty()) {
    refuse_interface(facts,
                     format("the host name '{}' does not resolve, so gloo would listen on the loopback alone",
                            facts.host));
  }
  for (const auto& address : facts.host_addresses) {
    if (is_loopback(facts, address)) {
      refuse_interface(
          facts,
          format("the host name '{}' resolves to {}, the loopback, which ranks on other nodes cannot reach",
                 facts.host, address));
    }
    if (is_local(facts, address)) return {"", address};
  }
  refuse_interface(facts, format("the host name '{}' resolves to {}, which is no address of this machine",
                                 facts.host, facts.host_addresses.front()));
}

}  // namespace

GlooInterface choose_interface(const NetworkFacts& facts, bool many_nodes) {
  if (!facts.wanted.empty()) return named(facts, many_nodes);
  if (!many_nodes) return {"", "127.0.0.1"};
  return of_host_name(facts);
}

}  // namespace lockstep::comm
