#include "lockstep/parallel/trees/share_tree.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/format.h"
#include "lockstep/checkpoint/frame.h"

namespace lockstep::parallel {
namespace {

using checkpoint::StoredTree;

constexpr int kTag = 9;  // of gather_trees' messages

StoredTree laid_out(const void* data, size_t size, const std::string& name) {
  return checkpoint::unpickle_tree({static_cast<const uint8_t*>(data), size}, name);
}

ByteTensors stretches_of(const std::vector<at::Tensor>& storages) {
  ByteTensors all;
  for (const auto& bytes : storages) all.add(bytes);
  return all;
}

// Calls pass(from, slot) for each piece, with one buffer for all.
template <class Pass>
void piece_by_piece(const Team& team, int64_t total, int64_t piece, const Pass& pass) {
  if (total == 0) return;
  const auto buffer =
      at::empty({std::min(total, piece)}, at::TensorOptions(at::kByte).device(team.host_device()));
  for (int64_t from = 0; from < total; from += piece)
    pass(from, buffer.slice(0, 0, std::min(piece, total - from)));
}

void broadcast(const Team& team, const ByteTensors& all, int64_t piece) {
  piece_by_piece(team, all.total, piece, [&](int64_t from, const at::Tensor& slot) {
    if (team.first()) take_from(all, from, slot);
    std::vector<at::Tensor> tensors{slot};
    team.group()->broadcast(tensors)->wait();
    if (!team.first()) put_into(all, from, slot);
  });
}

void send(const Team& team, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor.to(team.host_device())};
  team.group()->send(tensors, 0, kTag)->wait();
}

void receive_into(const Team& team, int rank, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  team.group()->recv(tensors, rank, kTag)->wait();
}

at::Tensor receive(const Team& team, int rank, int64_t size, at::ScalarType type) {
  const auto tensor = torch::empty({size}, torch::dtype(type).device(team.host_device()));
  receive_into(team, rank, tensor);
  return tensor.to(torch::kCPU);
}

void send_tree(const Team& team, const Tree& tree, int64_t piece) {
  std::vector<at::Tensor> storages;
  const auto copy = snapshot(tree);
  auto frame = checkpoint::pickle_tree(copy, storages);
  const auto size = static_cast<int64_t>(frame.size());
  send(team, torch::tensor({size}));
  send(team, torch::from_blob(frame.data(), {size}, torch::kUInt8));
  const auto all = stretches_of(storages);
  piece_by_piece(team, all.total, piece, [&](int64_t from, const at::Tensor& slot) {
    take_from(all, from, slot);
    send(team, slot);
  });
}

Tree receive_tree(const Team& team, int rank, int64_t piece) {
  const auto size = receive(team, rank, 1, torch::kInt64).item<int64_t>();
  const auto frame = receive(team, rank, size, torch::kUInt8);
  const auto filled = laid_out(frame.const_data_ptr(), frame.nbytes(), format("rank {}'s state", rank));
  const auto all = stretches_of(filled.storages);
  piece_by_piece(team, all.total, piece, [&](int64_t from, const at::Tensor& slot) {
    receive_into(team, rank, slot);
    put_into(all, from, slot);
  });
  return filled.tree;
}

}  // namespace

Tree share_tree(const Team& team, const std::function<Tree()>& read, int64_t piece) {
  if (team.world() == 1) return read();
  StoredTree own;
  const auto frame = team.from_first([&] {
    own.tree = read();
    return checkpoint::pickle_tree(own.tree, own.storages);
  });
  team.together([&] {
    if (!team.first()) own = laid_out(frame.data(), frame.size(), "rank 0's checkpoint");
  });
  broadcast(team, stretches_of(own.storages), piece);
  return own.tree;
}

std::vector<Tree> gather_trees(const Team& team, const Tree& own, int64_t piece) {
  if (!team.first()) {
    send_tree(team, own, piece);
    return {};
  }
  std::vector<Tree> all{own};
  for (int rank = 1; rank < team.world(); ++rank) all.push_back(receive_tree(team, rank, piece));
  return all;
}

}  // namespace lockstep::parallel
