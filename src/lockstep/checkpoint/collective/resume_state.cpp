#include "lockstep/checkpoint/collective/resume_state.h"

#include <ATen/Version.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/collective/share_tree.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/rng.h"
#include "lockstep/parallel/ddp_core.h"

namespace lockstep::checkpoint {
namespace {

// The name on x86, numbers on Arm, which has no name.
std::string model_of_processor() {
  // several generations may share a hypervisor's name, but not these numbers
  constexpr const char* kNames[] = {"model name", "cpu family",      "model\t",
                                    "stepping",   "CPU implementer", "CPU part"};
  std::ifstream file("/proc/cpuinfo");
  std::vector<std::string> found;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    for (const char* name : kNames) {
      const auto colon = line.find(':');
      if (line.starts_with(name) && colon != std::string::npos)
        found.push_back(base::trimmed(line.substr(colon + 1)));
    }
  }
  return found.empty() ? "unknown" : base::join(found, " ");
}

}  // namespace

std::string processor() {
  return format("{}, {}", model_of_processor(), at::get_cpu_capability());
}

std::vector<Fact> machine_facts() {
  return {{"libtorch", TORCH_VERSION, "written with libtorch"}, {"processor", processor(), "written on"}};
}

void put_facts(const Tree& dict, const std::vector<Fact>& facts) {
  for (const auto& fact : facts) put(dict, fact.key, fact.here);
}

std::vector<std::string> differences(const Tree& dict, const std::vector<Fact>& facts,
                                     MissingFact unrecorded) {
  std::vector<std::string> found;
  for (const auto& [key, here, written] : facts) {
    const auto there = find(dict, key);
    if (!there || there->isNone()) {
      if (unrecorded == MissingFact::differs) found.push_back(format("written without recording {}", key));
    } else if (const auto before = as_string(*there, key); before != here) {
      found.push_back(format("{} {}, but this run uses {}", written, before, here));
    }
  }
  return found;
}

namespace {

constexpr const char* kEntry = "comm_hook";

const HookMemory* memory_of(const DdpCore* core) {
  return core && core->comm_hook() ? core->comm_hook().memory() : nullptr;
}

// A plug-in's name is its path, which may have changed.
std::string name_of(const DdpCore* core) {
  return core ? std::filesystem::path(core->comm_hook_name()).stem().string() : "";
}

bool keeps_something(const Team& team, const DdpCore* core) {
  const auto* memory = memory_of(core);
  std::vector<double> keeping{memory && memory->state ? 1.0 : 0.0};
  team.max(keeping);
  return keeping[0] != 0;
}

Tree own_part(const DdpCore* core, const std::string& layout) {
  auto part = make_dict({{"layout", layout}, {"name", name_of(core)}});
  const auto* memory = memory_of(core);
  if (!memory || !memory->state) return part;
  const auto tensors = make_dict();
  for (const auto& [name, tensor] : memory->state())
    if (tensor.defined()) put(tensors, name, tensor);
  put(part, "state", tensors);
  return snapshot(part);
}

HookState state_of(const Tree& tensors) {
  HookState state;
  for (const auto& [name, tensor] : items(tensors))
    state[as_string(name, kEntry)] = as_tensor(tensor, as_string(name, kEntry));
  return state;
}

// This rank's part, or why it is missing.
struct Part {
  HookState state;
  std::string missing;
};

Part part_of(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict) {
  const auto parts = find(dict, kEntry);
  if (!parts) return {{}, "the checkpoint has no state for it"};
  const auto all = elements(*parts);
  if (all.size() != static_cast<size_t>(team.world()))
    return {{}, format("the checkpoint has state for {} ranks, but there are {}", all.size(), team.world())};
  const auto& own = all[static_cast<size_t>(team.rank())];
  if (as_string(get(own, "layout"), kEntry) != layout)
    return {{}, "the model is split among the ranks in another way"};
  const auto was = as_string(get(own, "name"), kEntry);
  if (was != name_of(core)) return {{}, "the checkpoint has the state of " + (was.empty() ? "no hook" : was)};
  const auto state = find(own, "state");
  return {state ? state_of(*state) : HookState{}, ""};
}

void warn_once(const Team& team, const std::string& what) {
  if (team.first()) log::warning(what);
}

}  // namespace

void put_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict) {
  if (!keeps_something(team, core)) return;
  Tree own;
  team.together([&] { own = own_part(core, layout); });
  const auto all = gather_trees(team, own);
  if (team.first()) put(dict, kEntry, make_list(all));
}

void restore_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict) {
  const auto name = team.from_first([&] { return name_of(core); });
  const auto* memory = memory_of(core);
  if (core && core->comm_hook() && !memory)
    warn_once(team, format("the comm hook {} does not declare its state: any state is reset (see HookMemory "
                           "in lockstep/parallel/comm_hook.h)",
                           name));
  if (!keeps_something(team, core)) return;
  Part part;
  team.together([&] { part = part_of(team, core, layout, dict); });
  std::vector<std::string> missing;
  for (auto& one : team.all_gather(part.missing))
    if (!one.empty()) missing.push_back(std::move(one));
  if (!missing.empty())
    return warn_once(team, format("the state of the comm hook {} is reset: {}; the bits will differ from "
                                  "those of an uninterrupted run",
                                  name, missing.front()));
  team.together([&] {
    if (memory && memory->load && !part.state.empty()) memory->load(part.state);
  });
}

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

// One state is enough if all ranks draw the same numbers, as Python's do after the same manual_seed.
Tree gather_states(const Team& team, const at::Tensor& state) {
  const auto list = make_list();
  if (same_everywhere(team, state)) {
    append(list, state);
  } else {
    for (const auto& one : team.all_gather(state)) append(list, one);
  }
  return list;
}

void restore_generator(const Team& team, const Tree& list, const std::string& key, at::Device device) {
  const auto states = elements(list);
  if (states.size() == 1) return set_rng_state(as_tensor(states[0], key), device);
  if (states.size() != static_cast<size_t>(team.world())) return;
  set_rng_state(as_tensor(states[static_cast<size_t>(team.rank())], key), device);
}

// The largest number of GPUs of a rank; a rank with fewer repeats its last one.
size_t most_gpus(const Team& team, size_t own) {
  std::vector<double> most{static_cast<double>(own)};
  team.max(most);
  return static_cast<size_t>(most[0]);
}

// One list for each GPU.
std::vector<Tree> device_states(const Tree& dict) {
  std::vector<Tree> lists;
  if (const auto first = find(dict, kDevice)) lists.push_back(*first);
  if (const auto further = find(dict, kFurther))
    for (const auto& list : elements(*further)) lists.push_back(list);
  return lists;
}

void warn_where_gpus_differ(const Team& team, size_t saved, size_t used) {
  if (saved == used || saved == 0 || used == 0 || !team.first()) return;
  log::warning(format("the checkpoint has random states for {} GPU{} per rank, but {} {} used: {}", saved,
                      saved == 1 ? "" : "s", used, used == 1 ? "is" : "are",
                      saved < used ? "the other GPUs keep their seeds, so results may differ"
                                   : "the other states are not used, so results may differ"));
}

}  // namespace

void check_format(const Tree& tree, const std::string& path) {
  for (const auto& [key, highest] :
       {std::pair{kSessionKey, kSessionFormat}, std::pair{kTrainerKey, kCheckpointFormat}}) {
    const auto part = find(tree, key);
    const auto number = part ? as_int(get(*part, "format"), format("{}.format", key)) : 0;
    if (number <= highest) continue;
    throw InputError(
        format("the checkpoint has format {}, but this lockstep reads up to {}", number, highest), path,
        "use the version of lockstep that wrote it, or a newer one");
  }
}

Tree read_checkpoint(const std::string& path) {
  auto file = open_checkpoint_file(path);
  if (file.checksum == Checksum::none)
    log::info(format("{} has no checksum, so damage may go unnoticed", path));
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
  warn_where_gpus_differ(team, states.size(), most_gpus(team, gpus.size()));
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

}  // namespace lockstep::checkpoint
