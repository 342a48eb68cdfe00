#include "lockstep/train/share_tree.h"

#include "lockstep/checkpoint/pt.h"

namespace lockstep::train {
namespace {

std::string to_bytes(const Tree& tree) {
  std::string bytes;
  write_pt([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); }, tree);
  return bytes;
}

Tree from_bytes(const std::string& bytes) {
  return read_pt({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "rank 0's checkpoint");
}

}  // namespace

Tree share_tree(const Team& team, const std::function<Tree()>& read) {
  if (team.world() == 1) return read();
  Tree own;
  const auto bytes = team.from_first([&] {
    own = read();
    return to_bytes(own);
  });
  return team.first() ? own : from_bytes(bytes);
}

}  // namespace lockstep::train
