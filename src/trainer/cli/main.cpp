// The program: finds the command, runs it, and is the one place that prints an error.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/spawn_ranks.h"
#include "lockstep/launch/process/terminal.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

// glibc gives the big activations back to the kernel at every step otherwise: a third of a CNN's step
void keep_memory() {
  if (mallopt(M_MMAP_THRESHOLD, 1 << 30) == 0) mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most before 2.35
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
}

std::string help() {
  std::string text =
      "lockstep trains with PyTorch's DistributedDataParallel from C++, on one machine or a cluster.\n\n"
      "usage: lockstep COMMAND [arguments]\n\ncommands:\n";
  for (const Subcommand& command : commands()) text += format("  {:<11} {}\n", command.name, command.summary);
  return text +
         "\noptions:\n"
         "  -h, --help      this page; lockstep help COMMAND for a command\n"
         "  --version       lockstep, libtorch, MPI, NCCL, CUDA, compiler, commit\n"
         "  --cmake-prefix  print the CMAKE_PREFIX_PATH of this installation\n"
         "  --log LEVEL     debug, info, warning, error or silent (default info)\n"
         "  -q, --quiet     only warnings and errors, and no training log\n"
         "  -v, --verbose   more log lines: --log debug\n"
         "\nexamples:\n"
         "  lockstep train configs/mnist.yaml\n"
         "  mpirun -n 2 lockstep train configs/mnist.yaml --set run.name=two_ranks\n"
         "\nexit status: 0 success, 1 failure, 2 invalid input, 75 stopped with a checkpoint\n"
         "             (lockstep status has more: see its --help)\n"
         "LOCKSTEP_TRACE=1 adds a stack trace to an error.\n";
}

const Subcommand& find(const std::string& name) {
  std::vector<std::string> names = {"--help", "--version", "--cmake-prefix", "help"};
  for (const Subcommand& command : commands()) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  const char* kind = name.starts_with("-") ? "option" : "command";
  throw UsageError(format("unknown {} '{}'", kind, base::printable(name)), "lockstep",
                   base::did_you_mean(base::nearest(name, names).value_or("")) + "see lockstep --help");
}

bool is_level(std::string_view word) {
  return word == "-q" || word == "--quiet" || word == "-v" || word == "--verbose" || word == "--log" ||
         word.starts_with("--log=");
}

// --log LEVEL, -q and -v may stand before the command; they are passed on to it.
std::vector<std::string> take_level(std::vector<std::string>& args) {
  std::vector<std::string> level;
  while (!args.empty() && is_level(args[0])) {
    if (args == std::vector<std::string>{"--log"})
      throw UsageError("--log needs a value: LEVEL", "lockstep", "use debug, info, warning, error or silent");
    const auto end = args.begin() + (args[0] == "--log" ? 2 : 1);
    level.insert(level.end(), args.begin(), end);
    args.erase(args.begin(), end);
  }
  return level;
}

// `lockstep help train` is `lockstep train --help`
void move_help_behind_command(std::vector<std::string>& args) {
  if (args.size() < 2 || args[0] != "help" || args[1] == "help" || args[1].starts_with("-")) return;
  args.erase(args.begin());
  find(args[0]);
  args.emplace_back("--help");
}

int print_flushed(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return flushed(kDone);
}

// Prints what completes the last of the words that follow `lockstep`.
int complete(std::vector<std::string> words) {
  if (words.size() > 1 && words[0] == "help") words.erase(words.begin());
  for (const auto& [name, summary, run] : commands()) {
    if (words.size() == 1) print_completion(words[0], name, summary);
    if (words.size() > 1 && words[0] == name) return words[0] = kComplete, run(words);
  }
  return kDone;
}

// In troff's language. Some commands execute another program, so each has a process of its own.
int print_manual() {
  std::printf(
      ".TH LOCKSTEP 1 \"\" \"%s\"\n.SH NAME\nlockstep \\- distributed training from C++\n.SH SYNOPSIS\n"
      ".B lockstep COMMAND\n[arguments]\n.SH DESCRIPTION\n.nf\n%s.fi\n.SH COMMANDS\n",
      version_line().c_str(), as_roff(help()).c_str());
  for (const Subcommand& command : commands()) {
    if (command.name == "job") continue;  // for job scripts
    std::fflush(stdout);
    if (::fork() == 0) return command.run({kManual});
    ::wait(nullptr);
  }
  return kDone;
}

// Of a build, an install or a wheel.
std::string cmake_prefix() {
  namespace fs = std::filesystem;
  const auto prefix = fs::canonical("/proc/self/exe").parent_path().parent_path();
  for (const char* place : {"lib/cmake/lockstep", "lib64/cmake/lockstep", "."})
    if (fs::exists(prefix / place / "lockstepConfig.cmake")) return prefix;
  throw InputError("this installation of lockstep has no headers or CMake files", prefix.string(),
                   "use a build, an install or a wheel: docs/how-to/install.md");
}

// `lockstep job` is a program of its own, which holds no libtorch beside the ranks. It is started before
// libtorch is initialized, and before the C library knows its environment. A level of the log has no effect.
void exec_job_program(int argc, char** argv, char** environment) {
  int at = 1;
  while (at < argc && is_level(argv[at])) at += std::strcmp(argv[at], "--log") == 0 ? 2 : 1;
  if (at >= argc || std::strcmp(argv[at], "job") != 0) return;
  char path[PATH_MAX] = "";
  const auto length = ::readlink("/proc/self/exe", path, sizeof path - sizeof "-job");
  if (length <= 0) return;
  std::strcpy(path + length, "-job");
  argv[at] = path;
  ::execve(path, argv + at, environment);
}

int no_working_directory = 0;  // the reason, as errno

// Without a working directory, oneMKL ends the process in libtorch's initializers, before main, with an error
// that says nothing about it. An executable's .preinit_array runs before any library's initializers.
void leave_deleted_directory(int argc, char** argv, char** environment) {
  exec_job_program(argc, argv, environment);
  char path[PATH_MAX];
  if (::getcwd(path, sizeof path)) return;
  no_working_directory = errno;
  if (::chdir("/") != 0) return;
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeAll)(int, char**,
                                                                       char**) = leave_deleted_directory;

int run(std::vector<std::string> args, bool& alike) {
  alike = true;
  log::set_colour(launch::has_colour(STDERR_FILENO));
  const auto level = take_level(args);
  move_help_behind_command(args);
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help")
    return print_flushed(help());
  if (args[0] == "--version") return print_flushed(version_text());
  if (args[0] == kManual) return flushed(print_manual());
  if (args[0] == kComplete) return flushed(complete({args.begin() + 1, args.end()}));
  if (args[0] == "--cmake-prefix") return print_flushed(cmake_prefix() + "\n");
  const Subcommand& command = find(args[0]);
  if (no_working_directory != 0)
    throw InputError(format("cannot read the working directory: {}", std::strerror(no_working_directory)), "",
                     "change to another folder");
  alike = !joins_job(command.name);
  std::vector<std::string> rest(args.begin() + 1, args.end());
  rest.insert(rest.end(), level.begin(), level.end());
  return flushed(command.run(rest));
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  lockstep::launch::end_with_spawner();
  lockstep::base::open_standard_descriptors();
  lockstep::cli::keep_memory();
  lockstep::cli::exit_on_uncaught_errors();
  std::signal(SIGPIPE, SIG_IGN);  // a peer that is gone must be an error, not our end
  // libtorch's destructors take a quarter of a short command's time to free what the kernel frees anyway.
  // What plug-ins leave for the exit runs before this, as it was registered later; a preloaded profiler's
  // would not.
  if (!std::getenv("LD_PRELOAD")) lockstep::launch::skip_destructors_at_exit();
  return lockstep::cli::guarded([&](bool& alike) {
    return lockstep::cli::run({argv + 1, argv + argc}, alike);
  });
}
