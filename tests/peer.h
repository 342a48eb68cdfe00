#pragma once
// Real Python beside the C++: runs a script of the source tree and gives back what it printed.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "temp_folder.h"

namespace lockstep::test {

/// The interpreter of .deps, where it can import `module`; empty otherwise.
inline std::string python_with(const std::string& module) {
  const std::string python = ".deps/python/bin/python3";
  if (!std::filesystem::exists(python)) return {};
  const auto probe =
      python + " -c 'import importlib.util as u, sys; sys.exit(u.find_spec(\"" + module + "\") is None)'";
  return std::system(probe.c_str()) == 0 ? python : std::string();
}

/// Standard output of a command that must succeed.
inline std::string output_of(const std::string& command) {
  std::string text;
  std::array<char, 1 << 16> chunk;
  FILE* pipe = ::popen(command.c_str(), "r");
  while (const size_t got = pipe ? std::fread(chunk.data(), 1, chunk.size(), pipe) : 0)
    text.append(chunk.data(), got);
  EXPECT_EQ(pipe ? ::pclose(pipe) : -1, 0) << command;
  return text;
}

}  // namespace lockstep::test

/// Skips the test, saying why, where Python lacks the module.
#define LOCKSTEP_PYTHON_OR_SKIP(variable, module)                   \
  const std::string variable = lockstep::test::python_with(module); \
  if (variable.empty()) GTEST_SKIP() << "no Python with " << module << " in .deps/python to compare with"
