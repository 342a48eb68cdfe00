#pragma once
// What the judges of YAML exercises share.

#include "course/workshop/judge.h"
#include "lockstep/base/error.h"
#include "trainer/config/load.h"

namespace lockstep::workshop {

/// The learner's config, read as the program reads it; NotYet where that finds a mistake.
inline Settings settings_of(const Attempt& attempt) {
  try {
    return config::load_settings(attempt.text(), attempt.path()).settings;
  } catch (const Error& error) {
    throw NotYet("the config cannot be read:\n" + describe(error));
  }
}

}  // namespace lockstep::workshop
