#pragma once
// A command called as main calls it, what it prints, and what it refuses with.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "refusal.h"
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

/// As refusal_of(), and what was printed until then is not shown.
template <class Kind = InputError>
std::string refusal(const std::function<void()>& act) {
  return refusal_of<Kind>([&] { printed(act); });
}

}  // namespace lockstep::test
