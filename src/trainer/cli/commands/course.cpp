// lockstep check and lockstep workshop: the course is a program of its own, an optional part of an install.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "trainer/cli/commands.h"

namespace lockstep::cli {
namespace {

int exec_course_program(const std::string& command, const std::vector<std::string>& args) {
  std::vector<std::string> words = {
      std::filesystem::canonical("/proc/self/exe").parent_path() / "lockstep-workshop", command};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv.front(), argv.data());
  if (errno == ENOENT)
    throw InputError("the course is not installed with this lockstep", words.front(),
                     "build it with -DLOCKSTEP_COURSE=ON, and install it: cmake --install BUILD");
  throw Error(format("the course cannot be started: {}", std::strerror(errno)), words.front());
}

}  // namespace

int run_check(const std::vector<std::string>& args) {
  return exec_course_program("check", args);
}

int run_workshop(const std::vector<std::string>& args) {
  return exec_course_program("workshop", args);
}

}  // namespace lockstep::cli
