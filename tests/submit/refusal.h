#pragma once
// What is refused, and with which words.

#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::test {

/// "what / where / what to do" of the InputError that is thrown; "" where none is.
inline std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& error) {
    return std::string(error.what()) + " / " + error.where() + " / " + error.hint();
  }
  return "";
}

}  // namespace lockstep::test
