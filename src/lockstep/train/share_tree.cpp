#include "lockstep/train/share_tree.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/format.h"
#include "lockstep/checkpoint/pt.h"

namespace lockstep::train {
namespace {

constexpr int kTag = 9;  // of gather_trees' messages

std::string to_bytes(const Tree& tree) {
  std::string bytes;
  write_pt([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); }, tree);
  return bytes;
}

Tree from_bytes(const void* data, size_t size, const std::string& name) {
  return read_pt({static_cast<const uint8_t*>(data), size}, name);
}

void send(const Team& team, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor.to(team.device())};
  team.group()->send(tensors, 0, kTag)->wait();
}

at::Tensor receive(const Team& team, int rank, int64_t size, at::ScalarType type) {
  std::vector<at::Tensor> tensors{torch::empty({size}, torch::dtype(type).device(team.device()))};
  team.group()->recv(tensors, rank, kTag)->wait();
  return tensors[0].to(torch::kCPU);
}

void send_tree(const Team& team, const Tree& tree) {
  auto bytes = to_bytes(snapshot(tree));
  const auto size = static_cast<int64_t>(bytes.size());
  send(team, torch::tensor({size}));
  send(team, torch::from_blob(bytes.data(), {size}, torch::kUInt8));
}

Tree receive_tree(const Team& team, int rank) {
  const auto size = receive(team, rank, 1, torch::kInt64).item<int64_t>();
  const auto bytes = receive(team, rank, size, torch::kUInt8);
  return from_bytes(bytes.const_data_ptr(), bytes.nbytes(), format("rank {}'s state", rank));
}

}  // namespace

Tree share_tree(const Team& team, const std::function<Tree()>& read) {
  if (team.world() == 1) return read();
  Tree own;
  const auto bytes = team.from_first([&] {
    own = read();
    return to_bytes(own);
  });
  return team.first() ? own : from_bytes(bytes.data(), bytes.size(), "rank 0's checkpoint");
}

std::vector<Tree> gather_trees(const Team& team, const Tree& own) {
  if (!team.first()) {
    send_tree(team, own);
    return {};
  }
  std::vector<Tree> all{own};
  for (int rank = 1; rank < team.world(); ++rank) all.push_back(receive_tree(team, rank));
  return all;
}

}  // namespace lockstep::train
