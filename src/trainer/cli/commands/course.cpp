// lockstep check, workshop and job: programs of their own. An install may lack the course.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

// Replaces this process by a program beside it.
int exec_beside(std::vector<std::string> words, const std::vector<std::string>& args,
                const std::string& missing, const std::string& hint) {
  words.front() = std::filesystem::canonical("/proc/self/exe").parent_path() / words.front();
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv.front(), argv.data());
  if (errno == ENOENT) throw InputError(missing, words.front(), hint);
  throw Error(format("the program cannot be started: {}", std::strerror(errno)), words.front());
}

int exec_course_program(const std::string& command, const std::vector<std::string>& args) {
  return exec_beside({"lockstep-workshop", command}, args, "the course is not installed with this lockstep",
                     "build it with -DLOCKSTEP_COURSE=ON, and install it: cmake --install BUILD");
}

}  // namespace

int run_check(const std::vector<std::string>& args) {
  return exec_course_program("check", args);
}

int run_workshop(const std::vector<std::string>& args) {
  return exec_course_program("workshop", args);
}

// exec_job_program() in main.cpp is faster, but does not see a `job` that follows `help`.
int run_job(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == kComplete) return kDone;
  return exec_beside({"lockstep-job"}, args, "lockstep-job is missing", "install lockstep again");
}

}  // namespace lockstep::cli
