#pragma once
// A machine checks so many exercises at once and no more: a class on one login node takes turns. And a
// learner's folder is checked by one at a time.

#include <functional>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::workshop {

/// Hears, once, that there is somebody to wait for.
using SayWaiting = std::function<void(const std::string&)>;

/// How many checks this machine makes at once: LOCKSTEP_CHECKS, else two cores and 4 GB for each.
int checks_at_once();

/// Held for one check. Who has waited for ten minutes goes on all the same.
base::Descriptor take_check_slot(const SayWaiting& say);

/// Held for as long as a folder's check lasts; `lock` is a file of it.
base::Descriptor take_folder(const std::string& lock, const SayWaiting& say);

}  // namespace lockstep::workshop
