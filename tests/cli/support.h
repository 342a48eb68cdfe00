#pragma once
// A command called as main calls it, what it prints, and what it refuses with.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "trainer/cli/commands.h"

namespace lockstep::test {

inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

/// "status runs/mnist"
inline int call(const std::string& line) {
  auto args = words_of(line);
  const auto row = std::ranges::find(cli::commands(), args.at(0), &cli::Subcommand::name);
  args.erase(args.begin());
  return row->run(args);
}

/// What goes to standard output.
inline std::string printed(const std::function<void()>& act) {
  ::testing::internal::CaptureStdout();
  try {
    act();
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  return ::testing::internal::GetCapturedStdout();
}

/// "what / where / what to do" of the Kind that is thrown; "" where nothing is.
template <class Kind = InputError>
std::string refusal(const std::function<void()>& act) {
  try {
    printed(act);
  } catch (const Kind& error) {
    return std::string(error.what()) + " / " + error.where() + " / " + error.hint();
  }
  return "";
}

inline ::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no '" << part << "' in:\n" << text;
}

}  // namespace lockstep::test
