#include "tools/doctor/report_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <sstream>

#include "lockstep/base/files/small_file.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/identify.h"

namespace lockstep::doctor {
namespace {

std::string with(const std::string& path, const std::string& word) {
  std::filesystem::path file = path;
  const auto extension = file.extension().string();
  file.replace_extension();
  return format("{}.{}{}", file.string(), word, extension);
}

double seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return seconds(time);
}

// When this process began, seconds since 1970: field 22 of proc(5)'s stat, whose second may hold blanks.
double beginning() {
  const auto line = base::first_line("/proc/self/stat");
  std::istringstream words(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string skipped;
  for (int field = 3; field < 22; ++field) words >> skipped;
  double ticks = 0;
  words >> ticks;
  return now(CLOCK_REALTIME) - (now(CLOCK_BOOTTIME) - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

}  // namespace

ReportFile::ReportFile(const std::string& path, int rank)
    : path_(rank > 0 ? with(path, format("rank{}", rank)) : path) {
  if (!claim(path_)) path_ = with(path, format("{}-{}", launch::current_surroundings({}).host, ::getpid()));
}

// By a lock that outlives the writing: who comes later finds the file locked, or written since it began.
bool ReportFile::claim(const std::string& path) {
  struct stat there {
  }, ours{};
  if (::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    return true;  // a link, a pipe, a terminal
  claimed_ = base::Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!claimed_) return true;  // writing it will tell why
  if (::flock(claimed_.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  if (::stat(path.c_str(), &there) != 0 || ::fstat(claimed_.number(), &ours) != 0) return true;
  const bool replaced = there.st_ino != ours.st_ino;
  return !replaced && (ours.st_size == 0 || seconds(ours.st_mtim) < beginning());
}

}  // namespace lockstep::doctor
