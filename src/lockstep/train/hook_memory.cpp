#include "lockstep/train/hook_memory.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/parallel/ddp_core.h"
#include "lockstep/train/share_tree.h"

namespace lockstep::train {
namespace {

constexpr const char* kEntry = "comm_hook";

const HookMemory* memory_of(const DdpCore* core) {
  return core && core->comm_hook() ? core->comm_hook().memory() : nullptr;
}

// A plug-in's name is its path, and it may lie elsewhere by now.
std::string name_of(const DdpCore* core) {
  return core ? std::filesystem::path(core->comm_hook_name()).stem().string() : "";
}

Tree own_part(const DdpCore* core) {
  const auto part = make_dict();
  const auto* memory = memory_of(core);
  if (!memory || !memory->state) return part;
  const auto tensors = make_dict();
  for (const auto& [name, tensor] : memory->state()) put(tensors, name, tensor);
  put(part, "name", name_of(core));
  put(part, "state", tensors);
  return part;
}

HookState state_of(const Tree& tensors) {
  HookState state;
  for (const auto& [name, tensor] : items(tensors))
    state[as_string(name, kEntry)] = as_tensor(tensor, as_string(name, kEntry));
  return state;
}

// "" where the part of this rank's hook is there.
std::string what_is_missing(const Team& team, const DdpCore* core, const Tree& dict) {
  const auto parts = find(dict, kEntry);
  if (!parts) return "the checkpoint has nothing of it";
  const auto all = elements(*parts);
  if (all.size() != static_cast<size_t>(team.world()))
    return format("the checkpoint has it of {} ranks, and there are {}", all.size(), team.world());
  const auto name = find(all[static_cast<size_t>(team.rank())], "name");
  if (!name) return "the checkpoint has nothing of it for this rank";
  const auto was = as_string(*name, kEntry);
  return was == name_of(core) ? "" : "the checkpoint has that of " + was;
}

}  // namespace

void put_hook_memory(const Team& team, const DdpCore* core, const Tree& dict) {
  const auto* memory = memory_of(core);
  std::vector<double> keeping{memory && memory->state ? 1.0 : 0.0};
  team.sum(keeping);
  if (keeping[0] == 0) return;
  const auto all = gather_trees(team, own_part(core));
  if (team.first()) put(dict, kEntry, make_list(all));
}

void restore_hook_memory(const Team& team, const DdpCore* core, const Tree& dict) {
  if (!core || !core->comm_hook()) return;
  const auto* memory = memory_of(core);
  if (!memory) {
    log::warning(
        format("the comm hook {} does not say what it keeps from step to step: if there is anything, "
               "it begins afresh (HookMemory in lockstep/parallel/comm_hook.h)",
               name_of(core)));
    return;
  }
  if (!memory->load) return;
  const auto missing = what_is_missing(team, core, dict);
  if (missing.empty()) {
    const auto part = elements(get(dict, kEntry))[static_cast<size_t>(team.rank())];
    memory->load(state_of(get(part, "state")));
  } else {
    log::warning(
        format("what the comm hook {} kept from step to step begins afresh: {}; the bits will not be "
               "those of a run that went through",
               name_of(core), missing));
  }
}

}  // namespace lockstep::train
