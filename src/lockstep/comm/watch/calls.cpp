#include "lockstep/comm/watch/calls.h"

#include <array>
#include <map>
#include <set>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {
namespace {

constexpr size_t kPartBytes = 300;  // of each of a call's parts
using Parts = std::array<std::string, 5>;
constexpr std::array<const char*, 3> kPartNames = {"operation", "type", "shape"};
constexpr size_t kName = 3, kDigest = 4;  // the operation's name; a digest of the complete parts

// FNV-1a: unlike std::hash the same in every build and on every machine
std::string digest(const Parts& parts) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const auto& part : parts)
    for (const char c : part + '\n') hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return std::to_string(hash);
}

// Cuts each part to its room and ends it with a zero.
std::string pack_parts(const Parts& parts) {
  std::string bytes(parts.size() * kPartBytes, '\0');
  for (size_t i = 0; i < parts.size(); ++i) parts[i].copy(bytes.data() + i * kPartBytes, kPartBytes - 1);
  return bytes;
}

Parts unpack_parts(const std::string& bytes) {
  Parts parts;
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = bytes.substr(i * kPartBytes, kPartBytes).c_str();
  return parts;
}

std::string in_words(const Parts& parts) {
  return parts[0] + (parts[1].empty() ? "" : format(" of {} {}", parts[1], parts[2]));
}

std::string aspects(const std::vector<Parts>& all) {
  std::string text;
  for (size_t i = 0; i < kPartNames.size(); ++i) {
    std::set<std::string> values;
    for (const auto& parts : all) values.insert(parts[i]);
    if (values.size() > 1) text += (text.empty() ? "" : " and ") + std::string(kPartNames[i]);
  }
  // they differ only behind the first kPartBytes
  return text.empty() ? "their last tensors" : text;
}

Difference describe_all(const std::vector<Parts>& all) {
  std::map<std::string, std::vector<int>> ranks;
  std::vector<RankCall> calls;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    ranks[in_words(all[rank])].push_back(static_cast<int>(rank));
    calls.push_back({.rank = static_cast<int>(rank), .call = all[rank][kName]});
  }
  std::string text;
  for (const auto& [words, those] : ranks)
    text += format("{}{} call{} {}", text.empty() ? "" : "; ", base::rank_list(those),
                   those.size() == 1 ? "s" : "", words);
  return {format("the ranks' calls differ in {}: {}", aspects(all), text), std::move(calls)};
}

std::string list_of(const std::vector<at::Tensor>& tensors, std::string (*part)(const at::Tensor&)) {
  std::string text;
  for (const auto& tensor : tensors) text += (text.empty() ? "" : ", ") + part(tensor);
  return text;
}

}  // namespace

std::string op_name(c10d::OpType type) {
  using c10d::OpType;
  static const std::map<OpType, const char*> kNames = {
      {OpType::BROADCAST, "broadcast"},
      {OpType::ALLREDUCE, "all-reduce"},
      {OpType::_ALLREDUCE_SPARSE, "sparse all-reduce"},
      {OpType::ALLREDUCE_COALESCED, "all-reduce of several tensors"},
      {OpType::REDUCE, "reduce"},
      {OpType::ALLGATHER, "all-gather"},
      {OpType::_ALLGATHER_BASE, "all-gather"},
      {OpType::ALLGATHER_COALESCED, "all-gather of several tensors"},
      {OpType::GATHER, "gather"},
      {OpType::SCATTER, "scatter"},
      {OpType::REDUCE_SCATTER, "reduce-scatter"},
      {OpType::_REDUCE_SCATTER_BASE, "reduce-scatter"},
      {OpType::ALLTOALL, "all-to-all"},
      {OpType::ALLTOALL_BASE, "all-to-all"},
      {OpType::SEND, "send"},
      {OpType::RECV, "receive"},
      {OpType::RECVANYSOURCE, "receive from anyone"},
      {OpType::BARRIER, "barrier"},
  };
  const auto found = kNames.find(type);
  return found == kNames.end() ? c10d::opTypeToString(type) : found->second;
}

void require_rank(int64_t rank, int world, const char* what) {
  if (rank >= 0 && rank < world) return;
  throw InputError(format("rank {} cannot be {}: the group has {} ranks", rank, what, world), "",
                   format("give a rank from 0 to {}", world - 1));
}

Collective message_with(c10d::OpType type, int peer, std::chrono::milliseconds timeout) {
  const char* what = type == c10d::OpType::SEND ? "has not received it" : "has not sent one";
  return {op_name(type), 0, timeout, peer,
          peer < 0 ? "no rank has sent one" : format("rank {} {}", peer, what)};
}

Call call_of(c10d::OpType type, const std::vector<at::Tensor>& tensors, const std::string& how) {
  const auto type_of = [](const at::Tensor& tensor) {
    return std::string(c10::toString(tensor.scalar_type()));
  };
  const auto shape_of = [](const at::Tensor& tensor) { return c10::str(tensor.sizes()); };
  return {op_name(type), op_name(type) + how, list_of(tensors, type_of), list_of(tensors, shape_of)};
}

std::string of_root(int64_t root) {
  return format(" with root {}", root);
}

std::string of_sum(const c10d::ReduceOp& op) {
  using c10d::ReduceOp;
  static const std::map<ReduceOp::RedOpType, const char*> kNames = {
      {ReduceOp::SUM, "sum"}, {ReduceOp::AVG, "average"},       {ReduceOp::PRODUCT, "product"},
      {ReduceOp::MIN, "min"}, {ReduceOp::MAX, "max"},           {ReduceOp::BAND, "bitwise and"},
      {ReduceOp::BOR, "or"},  {ReduceOp::BXOR, "exclusive or"},
  };
  const auto found = kNames.find(op.op_);
  return format(" ({})", found == kNames.end() ? "another reduction" : found->second);
}

Difference difference(const Call& own, const GatherBytes& gather) {
  Parts parts = {own.operation, own.types, own.shapes, own.name};
  parts[kDigest] = digest(parts);
  const auto texts = gather(pack_parts(parts));
  if (std::set<std::string>(texts.begin(), texts.end()).size() == 1) return {};
  std::vector<Parts> all;
  for (const auto& bytes : texts) all.push_back(unpack_parts(bytes));
  return describe_all(all);
}

}  // namespace lockstep::comm
