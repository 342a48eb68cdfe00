#include "lockstep/train/resumable.h"

#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <optional>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/rng.h"

namespace lockstep::train {
namespace {

bool same_everywhere(const Team& team, const at::Tensor& bytes) {
  // two checksums, each small enough to be exact as a double
  const auto words = bytes.to(torch::kFloat64);
  const auto places = torch::arange(1, words.numel() + 1, torch::kFloat64);
  const double plain = words.sum().item<double>(), weighed = words.mul(places).sum().item<double>();
  std::vector<double> ends{plain, -plain, weighed, -weighed};
  team.max(ends);
  return ends[0] == -ends[1] && ends[2] == -ends[3];
}

// Ranks that draw the same numbers, as Python's do after the same manual_seed, need one state between them.
Tree gather_states(const Team& team, const at::Tensor& state) {
  const auto list = make_list();
  if (same_everywhere(team, state)) {
    append(list, state);
  } else {
    for (const auto& one : team.all_gather(state)) append(list, one);
  }
  return list;
}

std::optional<at::Tensor> own_state(const Tree& dict, const std::string& key, int rank, int world) {
  const auto states = elements(get(dict, key));
  if (states.size() == 1) return as_tensor(states[0], key);
  if (states.size() != static_cast<size_t>(world)) return std::nullopt;
  return as_tensor(states[static_cast<size_t>(rank)], key);
}

}  // namespace

void put_generators(const Team& team, const Tree& dict) {
  put(dict, "rng", gather_states(team, rng_state()));
  if (!team.device().is_cpu()) put(dict, "device_rng", gather_states(team, rng_state(team.device())));
}

void restore_generators(const Team& team, const Tree& dict) {
  if (const auto mine = own_state(dict, "rng", team.rank(), team.world())) set_rng_state(*mine);
  if (team.device().is_cpu() || !find(dict, "device_rng")) return;
  if (const auto mine = own_state(dict, "device_rng", team.rank(), team.world()))
    set_rng_state(*mine, team.device());
}

void put_libtorch(const Tree& dict) {
  put(dict, "libtorch", std::string(TORCH_VERSION));
}

void compare_libtorch(const Tree& dict) {
  const auto written = find(dict, "libtorch");
  if (!written || written->isNone()) return;
  const auto version = as_string(*written, "libtorch");
  if (version != TORCH_VERSION) {
    log::info(format(
        "the checkpoint was written with libtorch {}, and this is {}: from here on the bits may differ",
        version, TORCH_VERSION));
  }
}

Tree tree_of(const std::vector<std::vector<std::string>>& buckets) {
  const auto list = make_list();
  for (const auto& bucket : buckets) {
    const auto names = make_list();
    for (const auto& name : bucket) append(names, name);
    append(list, names);
  }
  return list;
}

std::vector<std::vector<std::string>> buckets_of(const Tree& list) {
  std::vector<std::vector<std::string>> buckets;
  for (const auto& names : elements(list)) {
    auto& bucket = buckets.emplace_back();
    for (const auto& name : elements(names)) bucket.push_back(as_string(name, "buckets"));
  }
  return buckets;
}

}  // namespace lockstep::train
