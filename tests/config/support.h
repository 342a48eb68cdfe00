#pragma once
// What the config room's tests share.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "refusal.h"
#include "trainer/config/load.h"

namespace lockstep::test {

inline Settings settings_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  return config::load_settings(text, "c.yaml", sets, {{"USER_DIR", "/scratch/me"}, {"EMPTY", ""}}).settings;
}

inline std::vector<std::string> warnings_of(const std::string& text) {
  return config::load_settings(text, "c.yaml").warnings;
}

/// The error that the text must give; a text that loads is a failure.
inline InputError error_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  SCOPED_TRACE(text.substr(0, 200));
  return error_from([&] { settings_of(text, sets); });
}

}  // namespace lockstep::test
