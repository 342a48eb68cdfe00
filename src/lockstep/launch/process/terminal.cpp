#include "lockstep/launch/process/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultWidth = 80;
std::string in_proc(pid_t process, const std::string& name) {
  return format("/proc/{}/{}", process, name);
}

// Whether the launcher reads what a rank writes there: through a pipe or a pseudo terminal.
bool is_read_by(int descriptor, pid_t launcher) {
  struct stat own {};
  if (::fstat(descriptor, &own) != 0) return false;
  if (::isatty(descriptor)) return true;
  if (!S_ISFIFO(own.st_mode)) return false;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(in_proc(launcher, "fd"), none)) {
    struct stat other {};
    if (::stat(entry.path().c_str(), &other) == 0 && other.st_ino == own.st_ino && other.st_dev == own.st_dev)
      return true;
  }
  return false;
}

std::optional<Terminal> own(int descriptor) {
  if (!::isatty(descriptor)) return std::nullopt;
  return Terminal(base::Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3)));
}

std::optional<Terminal> opened(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISCHR(facts.st_mode)) return std::nullopt;
  base::Descriptor file(::open(path.c_str(), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  if (!file || !::isatty(file.number())) return std::nullopt;
  return Terminal(std::move(file));
}

std::optional<Terminal> terminal_of(pid_t launcher, int descriptor) {
  // hydra's proxy runs between mpiexec and the ranks
  for (pid_t above = parent_of(launcher); !launcher_named(above).empty(); above = parent_of(launcher))
    launcher = above;
  if (rewrites_output(command_line_of(std::to_string(launcher)))) return std::nullopt;
  return opened(in_proc(launcher, format("fd/{}", descriptor)));
}

}  // namespace

std::vector<std::string> command_line_of(const std::string& process) {
  std::ifstream file(format("/proc/{}/cmdline", process));
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string launcher_named(pid_t process) {
  const auto name = base::first_line(in_proc(process, "comm"));
  return is_mpi_starter(name) ? name : "";
}

int Terminal::width() const {
  winsize size{};
  return ::ioctl(file_.number(), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultWidth;
}

std::optional<Terminal> terminal_behind(int descriptor) {
  const char* kind = std::getenv("TERM");
  if (kind && std::string(kind) == "dumb") return std::nullopt;
  const pid_t parent = ::getppid();
  if (launcher_named(parent).empty()) return own(descriptor);
  return is_read_by(descriptor, parent) ? terminal_of(parent, descriptor) : std::nullopt;
}

bool has_colour(int descriptor) {
  const char* refused = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  return !(refused && *refused) && kind && *kind && terminal_behind(descriptor).has_value();
}

bool rewrites_output(const std::vector<std::string>& command_line) {
  constexpr std::array<const char*, 6> kParts = {"output",  "outfile",   "errfile",
                                                 "prepend", "timestamp", "xterm"};
  return std::any_of(command_line.begin(), command_line.end(), [&](const std::string& word) {
    if (word == "-l" || word.find("tag_output") != word.npos || word.find("output_filename") != word.npos)
      return true;
    if (!word.starts_with("-") || word.starts_with("--set")) return false;
    return std::any_of(kParts.begin(), kParts.end(),
                       [&](const char* part) { return word.find(part) != word.npos; });
  });
}

}  // namespace lockstep::launch
