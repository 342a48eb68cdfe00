// What this machine says of its network: the interfaces that are up, and a host's addresses.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#include "lockstep/comm/meet/interface.h"
#include "lockstep/comm/meet/lookup.h"

namespace lockstep::comm {
namespace {

std::string numeric_address(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* raw = address->sa_family == AF_INET
                        ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                        : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  ::inet_ntop(address->sa_family, raw, text.data(), text.size());
  return text.data();
}

// Of a mask; 0 where there is none.
int bits_in(const sockaddr* mask) {
  if (!mask) return 0;
  const bool four = mask->sa_family == AF_INET;
  const auto* bytes =
      four ? reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
           : reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr);
  int bits = 0;
  for (int i = 0; i < (four ? 4 : 16); ++i) bits += std::popcount(bytes[i]);
  return bits;
}

bool is_internet(const sockaddr* address) {
  return address && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

std::vector<NetworkAddress> interfaces_up() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<NetworkAddress> found;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!is_internet(entry->ifa_addr) || !(entry->ifa_flags & IFF_UP)) continue;
    found.push_back({entry->ifa_name, numeric_address(entry->ifa_addr),
                     (entry->ifa_flags & IFF_LOOPBACK) != 0, bits_in(entry->ifa_netmask)});
  }
  return found;
}

std::vector<std::string> resolve(const std::string& host, std::chrono::milliseconds timeout = kNameService) {
  const auto answer = look_up(host, 0, timeout);
  std::vector<std::string> found;
  for (const addrinfo* entry = answer.addresses.get(); entry; entry = entry->ai_next) {
    if (is_internet(entry->ai_addr)) found.push_back(numeric_address(entry->ai_addr));
  }
  return found;
}

bool begin_with_loopback(const std::vector<std::string>& addresses) {
  return !addresses.empty() && (addresses.front().rfind("127.", 0) == 0 || addresses.front() == "::1");
}

}  // namespace

bool is_loopback_name(const std::string& host) {
  return begin_with_loopback(resolve(host));
}

bool names_loopback_itself(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

bool is_own_address(const std::string& host, std::chrono::milliseconds timeout) {
  const auto addresses = resolve(host, std::min(timeout, kNameService));
  if (begin_with_loopback(addresses)) return true;
  const auto interfaces = interfaces_up();
  return std::any_of(interfaces.begin(), interfaces.end(), [&](const auto& entry) {
    return !addresses.empty() && entry.address == addresses.front();
  });
}

NetworkFacts network_facts(const std::string& wanted) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return {name.data(), resolve(name.data()), interfaces_up(), wanted};
}

}  // namespace lockstep::comm
