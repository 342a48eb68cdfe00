#include "lockstep/train/hook_memory.h"
#include "lockstep/parallel/trees/share_tree.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/parallel/ddp_core.h"

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

bool keeps_something(const Team& team, const DdpCore* core) {
  const auto* memory = memory_of(core);
  std::vector<double> keeping{memory && memory->state ? 1.0 : 0.0};
  team.max(keeping);
  return keeping[0] != 0;
}

Tree own_part(const DdpCore* core, const std::string& layout) {
  const auto part = make_dict({{"layout", layout}, {"name", name_of(core)}});
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

// This rank's part where it is there; else why not.
struct Part {
  HookState state;
  std::string missing;
};

Part part_of(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict) {
  const auto parts = find(dict, kEntry);
  if (!parts) return {{}, "the checkpoint has nothing of it"};
  const auto all = elements(*parts);
  if (all.size() != static_cast<size_t>(team.world()))
    return {{}, format("the checkpoint has it of {} ranks, and there are {}", all.size(), team.world())};
  const auto& own = all[static_cast<size_t>(team.rank())];
  if (as_string(get(own, "layout"), kEntry) != layout)
    return {{}, "the ranks share the model in another way than before"};
  const auto was = as_string(get(own, "name"), kEntry);
  if (was != name_of(core)) return {{}, "the checkpoint has that of " + (was.empty() ? "no hook" : was)};
  const auto state = find(own, "state");
  return {state ? state_of(*state) : HookState{}, ""};
}

void say(const Team& team, const std::string& what) {
  if (team.first()) log::warning(what);
}

}  // namespace

void put_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict) {
  if (!keeps_something(team, core)) return;
  Tree own;
  team.together([&] { own = own_part(core, layout); });
  const auto all = parallel::gather_trees(team, own);
  if (team.first()) put(dict, kEntry, make_list(all));
}

void restore_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict) {
  const auto name = team.from_first([&] { return name_of(core); });
  const auto* memory = memory_of(core);
  if (core && core->comm_hook() && !memory)
    say(team,
        format("the comm hook {} does not say what it keeps from step to step: if there is anything, it "
               "begins afresh (HookMemory in lockstep/parallel/comm_hook.h)",
               name));
  if (!keeps_something(team, core)) return;
  Part part;
  team.together([&] { part = part_of(team, core, layout, dict); });
  std::vector<std::string> missing;
  for (auto& one : team.all_gather(part.missing))
    if (!one.empty()) missing.push_back(std::move(one));
  if (!missing.empty())
    return say(team,
               format("what the comm hook {} kept from step to step begins afresh: {}; the bits will not "
                      "be those of a run that went through",
                      name, missing.front()));
  team.together([&] {
    if (memory && memory->load && !part.state.empty()) memory->load(part.state);
  });
}

}  // namespace lockstep::train
