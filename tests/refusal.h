#pragma once
// What is refused, and with which words; and whether a text has them.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::test {

/// "what / where / what to do" of the Kind that is thrown; "" where none is.
template <class Kind = InputError>
std::string refusal_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Kind& error) {
    return std::string(error.what()) + " / " + error.where() + " / " + error.hint();
  }
  return "";
}

/// The error of the Kind that is thrown; a failure of the test where none is.
template <class Kind = InputError>
Kind error_from(const std::function<void()>& act) {
  try {
    act();
  } catch (const Kind& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Kind("none");
}

/// The text of what is thrown, or "".
inline std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline ::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no '" << part << "' in:\n" << text;
}

}  // namespace lockstep::test
