#include "lockstep/launch/process/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultWidth = 80;
constexpr size_t kLargest = 1 << 20;  // of what we read in /proc

// as the kernel knows them; the 16th letter is cut off
constexpr std::array<const char*, 5> kLauncherPrograms = {"mpirun", "mpiexec", "orterun", "prterun",
                                                          "hydra_pmi_proxy"};

std::string in_proc(pid_t process, const std::string& name) {
  return format("/proc/{}/{}", process, name);
}

std::string read_proc(pid_t process, const std::string& name) {
  try {
    return base::read_small_file(in_proc(process, name), kLargest, name);
  } catch (const InputError&) {
    return "";  // it has ended, or is not ours
  }
}

bool is_launcher(pid_t process) {
  return !launcher_named(process).empty();
}

pid_t parent_of(pid_t process) {
  const std::string status = read_proc(process, "status");
  const auto at = status.find("\nPPid:");
  return at == std::string::npos ? 0 : std::atoi(status.c_str() + at + 6);
}

std::vector<std::string> words_of(pid_t process) {
  std::vector<std::string> words;
  const std::string text = read_proc(process, "cmdline");
  for (size_t at = 0; at < text.size(); at += words.back().size() + 1) words.emplace_back(text.c_str() + at);
  return words;
}

// A rank's descriptor that its launcher made: a pipe whose other end the launcher holds, or a pseudo
// terminal.
bool passed_on(int descriptor, pid_t launcher) {
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

bool rewritten_by_environment() {
  for (const auto& [name, value] : current_environment()) {
    const bool parameter =
        name.starts_with("OMPI_MCA_") || name.starts_with("PRTE_MCA_") || name.starts_with("PMIX_MCA_");
    if (parameter && name.find("output") != std::string::npos) return true;
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

// hydra's proxy stands between mpiexec and the ranks
std::optional<Terminal> terminal_of(pid_t launcher, int descriptor) {
  for (pid_t above = parent_of(launcher); is_launcher(above); above = parent_of(launcher)) launcher = above;
  if (rewrites_output(words_of(launcher)) || rewritten_by_environment()) return std::nullopt;
  return opened(in_proc(launcher, format("fd/{}", descriptor)));
}

}  // namespace

std::string launcher_named(pid_t process) {
  const std::string name = read_proc(process, "comm");
  const bool known = std::any_of(kLauncherPrograms.begin(), kLauncherPrograms.end(),
                                 [&](const std::string& launcher) { return name.starts_with(launcher); });
  return known ? name.substr(0, name.find('\n')) : "";
}

int Terminal::width() const {
  winsize size{};
  return ::ioctl(file_.number(), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultWidth;
}

std::optional<Terminal> terminal_behind(int descriptor) {
  const char* kind = std::getenv("TERM");
  if (kind && std::string(kind) == "dumb") return std::nullopt;
  const pid_t parent = ::getppid();
  if (!is_launcher(parent)) return own(descriptor);
  return passed_on(descriptor, parent) ? terminal_of(parent, descriptor) : std::nullopt;
}

bool has_colour(int descriptor) {
  const char* refused = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  return !(refused && *refused) && kind && *kind && terminal_behind(descriptor).has_value();
}

void fit_log_to_terminal() {
  auto terminal = terminal_behind(STDERR_FILENO);
  if (!terminal) return;
  const auto held = std::make_shared<Terminal>(std::move(*terminal));
  log::set_look(
      {.colour = has_colour(STDERR_FILENO), .width = [held] { return static_cast<size_t>(held->width()); }});
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
