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

/// A folder of one test's own, gone with it.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << content;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

}  // namespace lockstep::test

/// Skips the test, saying why, where Python lacks the module.
#define LOCKSTEP_PYTHON_OR_SKIP(variable, module)                   \
  const std::string variable = lockstep::test::python_with(module); \
  if (variable.empty()) GTEST_SKIP() << "no Python with " << module << " in .deps/python to compare with"
