#include "trainer/loop/same_bits.h"
#include "lockstep/train/resumable.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/train/machine.h"

namespace lockstep::train {
namespace {

bool is_required(const Setup& setup) {
  return setup.settings.train.exact == SameBits::required;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw InputError(what, "train.exact: required", hint + ", or set train.exact to off");
}

std::string other_world(const Setup& setup, const Tree& extras, const Learner& learner) {
  const auto world = as_int(get(extras, "world"), "world");
  const auto here = setup.mesh->data().world();
  if (world == here) return "";
  return format("the run goes on at world size {}, it was {}: {}the bits will differ from a run at {}{}",
                here, world, learner.source->is_shared() ? "the epoch's samples stay right, " : "", world,
                setup.settings.train.as_world > 0 ? "" : format(" (train.as_world: {} keeps them)", world));
}

// gloo's, or the name of what sums in another order.
std::string order_of_sums(const Team& team) {
  if (!team.group()) return "none";
  auto name = team.group()->getBackend(team.device().type())->getBackendName();
  if (name == "shared" || (name == "mpi" && team.world() == 2)) return "gloo";
  for (const auto& algorithm : all_reduce_algorithms()) {
    if (algorithm.name == name && algorithm.has_bits_of_gloo(team.world())) return "gloo";
  }
  return name;
}

std::string device_kind(const Team& team) {
  const auto device = team.device();
  return device.is_cuda() ? comm::cuda().device_name(device.index()) : "a CPU";
}

// What it is here, and how a sentence says that it was another.
struct Fact {
  const char* key;
  std::string here;
  const char* was;  // "computed on", say
};

std::vector<Fact> facts_of(const Team& team) {
  return {{"threads", std::to_string(at::get_num_threads()), "computed with threads a rank:"},
          {"device", device_kind(team), "computed on"},
          {"sums", order_of_sums(team), "summed in the order of"}};
}

std::vector<std::string> unlike_run(const Team& team, const Tree& extras, Unrecorded unrecorded) {
  std::vector<std::string> unlike;
  for (const auto& fact : facts_of(team)) {
    const auto there = find(extras, fact.key);
    if (!there || there->isNone()) {
      if (unrecorded == Unrecorded::differs)
        unlike.push_back(format("written without a word of its {}", fact.key));
    } else if (const auto was = as_string(*there, fact.key); was != fact.here) {
      unlike.push_back(format("{} {}, and here it is {}", fact.was, was, fact.here));
    }
  }
  return unlike;
}

}  // namespace

void put_run_facts(const Team& team, const Tree& dict) {
  for (const auto& fact : facts_of(team)) put(dict, fact.key, fact.here);
}

void compare_bits(const Setup& setup, const Tree& checkpoint, const Learner& learner) {
  const bool required = is_required(setup);
  const auto unrecorded = required ? Unrecorded::differs : Unrecorded::passes;
  const auto extras = find(checkpoint, kTrainerKey);
  if (!extras && required)
    refuse("the checkpoint is not lockstep's own, and does not tell what its bits depend on",
           "start a new run");
  if (!extras) return;
  const auto world = other_world(setup, *extras, learner);
  if (required && !world.empty()) refuse(world, "start as many ranks, or set train.as_world");
  auto unlike = unlike_machine(*extras, unrecorded);
  const auto more = unlike_run(*setup.team, *extras, unrecorded);
  if (world.empty()) unlike.insert(unlike.end(), more.begin(), more.end());
  if (required && !unlike.empty())
    refuse("the run cannot go on to the same bits: the checkpoint was " + base::join(unlike, "; "),
           "resume where it was written");
  for (const auto& one : unlike)
    log::info(format("the checkpoint was {}: from here on the bits may differ", one));
  if (!world.empty()) log::warning(world);
}

void compare_ranks(const Setup& setup) {
  if (setup.settings.train.as_world == 0 && !is_required(setup)) return;
  const auto all = setup.team->all_gather(format("{}, {}", processor(), device_kind(*setup.team)));
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  const auto what = format(
      "the ranks compute on different processors, and with them the bits differ: rank 0 on {}, rank {} on {}",
      all[0], other - all.begin(), *other);
  if (is_required(setup)) refuse(what, "ask for nodes of one kind");
  log::warning(what);
}

}  // namespace lockstep::train
