#include "lockstep/comm/meet/peers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Peer, rank, node, pid, pid_space, host, address)

namespace {

// "a", "a and b", "a, b and c", and beyond kNamedRanks "…, h and 12 more"
std::string join(const std::vector<std::string>& items, size_t count) {
  const size_t named = std::min(count, kNamedRanks);
  std::string text;
  for (size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == count;
    text += i == 0 ? "" : last ? " and " : ", ";
    text += items[i];
  }
  if (count > named) text += format(" and {} more", count - named);
  return text;
}

}  // namespace

Peer own_peer(int rank, int node, const std::string& host, const std::string& address) {
  struct stat space {};
  const bool known = ::stat("/proc/self/ns/pid", &space) == 0;
  return {rank, node, ::getpid(), known ? static_cast<unsigned long>(space.st_ino) : 0, host, address, -1};
}

std::string name_of(const Peer& peer) {
  return format("rank {} (host {}, pid {})", peer.rank_in_job(), peer.host, peer.pid);
}

std::string names_of(const std::vector<Peer>& peers) {
  std::vector<std::string> names;
  for (const auto& peer : peers) names.push_back(name_of(peer));
  return join(names, names.size());
}

std::string rank_list(const std::vector<int>& ranks) {
  return rank_list(ranks, ranks.size());
}

std::string rank_list(const std::vector<int>& first, size_t count) {
  std::vector<std::string> names;
  for (const int rank : first) names.push_back(std::to_string(rank));
  return (count == 1 ? "rank " : "ranks ") + join(names, count);
}

std::string pack(const Peer& peer) {
  return base::as_line(nlohmann::json(peer));
}

Peer unpack_peer(const std::string& text) {
  try {
    return base::parse_json(text).get<Peer>();
  } catch (const nlohmann::json::exception&) {
    throw Error("the description of a rank is damaged", base::printable(text),
                "set a different MASTER_PORT for each job, and start the same lockstep on every rank");
  }
}

}  // namespace lockstep::comm
