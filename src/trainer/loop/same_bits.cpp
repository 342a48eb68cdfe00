#include "trainer/loop/same_bits.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/train/machine.h"

namespace lockstep::train {
namespace {

bool is_required(const Setup& setup) {
  return setup.settings.train.exact == "required";
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

std::string other_threads(const Setup& setup, const Tree& extras) {
  const auto there = find(extras, "threads");
  if (!there || there->isNone()) return "";
  const auto threads = as_int(*there, "threads");
  if (threads == setup.session->threads()) return "";
  return format("computed with {} thread{} a rank, and here with {}", threads, threads == 1 ? "" : "s",
                setup.session->threads());
}

}  // namespace

void compare_bits(const Setup& setup, const Tree& checkpoint, const Learner& learner) {
  const auto extras = find(checkpoint, "lockstep");
  if (!extras) return;
  const auto world = other_world(setup, *extras, learner);
  auto unlike = unlike_machine(*extras);
  if (is_required(setup)) {
    if (const auto threads = other_threads(setup, *extras); !threads.empty()) unlike.push_back(threads);
    if (!world.empty()) refuse(world, "start as many ranks, or set train.as_world");
    if (!unlike.empty())
      refuse("the run cannot go on to the same bits: the checkpoint was " + base::join(unlike, "; "),
             "resume where it was written");
  }
  for (const auto& one : unlike)
    log::info(format("the checkpoint was {}: from here on the bits may differ", one));
  if (!world.empty()) log::warning(world);
}

void compare_ranks(const Setup& setup) {
  if (setup.settings.train.as_world == 0 && !is_required(setup)) return;
  const auto all = setup.team->all_gather(processor());
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  const auto what =
      format("the ranks' processors differ, and with them the bits: rank 0 has {}, rank {} has {}", all[0],
             other - all.begin(), *other);
  if (is_required(setup)) refuse(what, "ask for nodes of one kind");
  log::warning(what);
}

}  // namespace lockstep::train
