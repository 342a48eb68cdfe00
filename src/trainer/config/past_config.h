#pragma once
// The config.yaml that a run left, whichever lockstep wrote it, and what makes another run of it.

#include <map>
#include <string>
#include <vector>

#include "trainer/config/settings.h"

namespace lockstep::config {

struct PastConfig {
  Settings settings;  // a key that the lockstep of that day did not know is as by default now
  /// Keys that this lockstep does not know, and their values.
  std::map<std::string, std::string> foreign = {};
};

/// Throws InputError where the text is no config at all.
PastConfig read_past_config(const std::string& text, const std::string& file_name);

/// What `now` leaves open (keys.h, Once) becomes what the run of `then` chose, where both are of one task.
void take_over(const PastConfig& then, Settings& now);

/// The keys that make `now` another run than `then`, as "optim.lr (was 0.01, is 0.1)". The place of a run and
/// a larger length do not count.
std::vector<std::string> differences(const PastConfig& then, const Settings& now);

}  // namespace lockstep::config
