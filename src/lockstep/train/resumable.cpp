#include "lockstep/train/resumable.h"

#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/rng.h"

namespace lockstep::train {
namespace {

constexpr const char* kDevice = "device_rng";
constexpr const char* kFurther = "further_device_rng";

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

std::optional<at::Tensor> own_state(const Team& team, const Tree& list, const std::string& key) {
  const auto states = elements(list);
  if (states.size() == 1) return as_tensor(states[0], key);
  if (states.size() != static_cast<size_t>(team.world())) return std::nullopt;
  return as_tensor(states[static_cast<size_t>(team.rank())], key);
}

void restore_generator(const Team& team, const Tree& list, const std::string& key, at::Device device) {
  if (const auto mine = own_state(team, list, key)) set_rng_state(*mine, device);
}

// As many as the rank has that computes on the most GPUs; one with fewer says its last again.
size_t most_gpus(const Team& team, size_t own) {
  std::vector<double> most{static_cast<double>(own)};
  team.max(most);
  return static_cast<size_t>(most[0]);
}

// A list a GPU: device_rng, and each of the further ones.
std::vector<Tree> device_states(const Tree& dict) {
  std::vector<Tree> lists;
  if (const auto first = find(dict, kDevice)) lists.push_back(*first);
  if (const auto further = find(dict, kFurther))
    for (const auto& list : elements(*further)) lists.push_back(list);
  return lists;
}

void say_where_gpus_differ(const Team& team, size_t saved, size_t used) {
  if (saved == used || saved == 0 || used == 0 || !team.first()) return;
  log::warning(format("the checkpoint has the random numbers of {} GPU{} a rank, and {} {} used: {}", saved,
                      saved == 1 ? "" : "s", used, used == 1 ? "is" : "are",
                      saved < used ? "those of the others go on as they are seeded, and the bits may differ"
                                   : "the others' are left out, and the bits may differ"));
}

}  // namespace

void check_format(const Tree& tree, const std::string& path) {
  for (const auto& [key, highest] :
       {std::pair{kSessionKey, kSessionFormat}, std::pair{kTrainerKey, kCheckpointFormat}}) {
    const auto part = find(tree, key);
    const auto number = part ? as_int(get(*part, "format"), format("{}.format", key)) : 0;
    if (number <= highest) continue;
    throw InputError(format("the checkpoint is of format {}, this lockstep reads up to {}", number, highest),
                     path, "use the lockstep that wrote it, or a newer one");
  }
}

Tree read_checkpoint(const std::string& path) {
  auto file = open_checkpoint_file(path);
  if (file.checksum == Checksum::none)
    log::info(format("{} has no checksum: a flipped bit would not be seen", path));
  check_format(file.tree, path);
  return std::move(file.tree);
}

std::vector<at::Device> gpus_of(const Team& team, const std::vector<at::Device>& all) {
  const auto own = team.device();
  if (own.is_cpu()) return {};
  std::vector<at::Device> gpus;
  for (const auto& one : all)
    if (one.type() == own.type() && one != own) gpus.push_back(one);
  std::ranges::sort(gpus, {}, &at::Device::index);
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  gpus.insert(gpus.begin(), own);
  return gpus;
}

void put_generators(const Team& team, const Tree& dict, const std::vector<at::Device>& gpus) {
  put(dict, "rng", gather_states(team, rng_state()));
  const auto further = make_list();
  const size_t count = gpus.empty() ? 0 : most_gpus(team, gpus.size());
  for (size_t i = 0; i < count; ++i) {
    const auto states = gather_states(team, rng_state(gpus[std::min(i, gpus.size() - 1)]));
    if (i == 0) put(dict, kDevice, states);
    if (i > 0) append(further, states);
  }
  if (count > 1) put(dict, kFurther, further);
}

void restore_generators(const Team& team, const Tree& dict, const std::vector<at::Device>& gpus) {
  restore_generator(team, get(dict, "rng"), "rng", at::kCPU);
  const auto states = device_states(dict);
  say_where_gpus_differ(team, states.size(), most_gpus(team, gpus.size()));
  for (size_t i = 0; i < std::min(states.size(), gpus.size()); ++i)
    restore_generator(team, states[i], i == 0 ? kDevice : kFurther, gpus[i]);
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
