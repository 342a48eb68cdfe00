#include "lockstep/comm/compare_over.h"

#include <ATen/ATen.h>

namespace lockstep::comm {
namespace {

at::Tensor byte_tensor(const std::string& text) {
  return at::from_blob(const_cast<char*>(text.data()), {static_cast<int64_t>(text.size())}, at::kByte)
      .clone();
}

std::vector<std::string> gather_over(c10d::Backend& base, const std::string& own) {
  std::vector<at::Tensor> mine = {byte_tensor(own)};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < base.getSize(); ++rank) all[0].push_back(at::empty_like(mine[0]));
  base.allgather(all, mine, {})->wait();
  std::vector<std::string> texts;
  for (const auto& bytes : all[0])
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()), own.size());
  return texts;
}

}  // namespace

void compare_over(c10d::Backend& base, RollCall& roll, const Collective& collective, const Call& own) {
  if (!roll.compares_calls()) return;
  const auto found = difference(own, [&](const std::string& bytes) { return gather_over(base, bytes); });
  if (!found.empty()) std::rethrow_exception(roll.end_at(collective.number, found));
}

std::exception_ptr death_of(RollCall& roll) {
  try {
    roll.require_alive();
    return nullptr;
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

}  // namespace lockstep::comm
