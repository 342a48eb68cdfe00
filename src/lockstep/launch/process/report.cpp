#include "lockstep/launch/process/report.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

constexpr DoctorHint kHints[] = {
    {Code::not_joined, "rendezvous"}, {Code::launcher, "launcher"},  {Code::gpu, "gpus"},
    {Code::versions, "versions"},     {Code::shared_memory, "shm"},  {Code::open_files, "limits"},
    {Code::no_memory, "memory"},      {Code::network, "interfaces"}, {Code::nccl, "nccl"},
};

}  // namespace

std::span<const DoctorHint> doctor_hints() {
  return kHints;
}

std::string with_doctor(const std::string& text, Code code) {
  const auto* hint = std::ranges::find(kHints, code, &DoctorHint::code);
  if (hint == std::end(kHints)) return text;
  return text +
         format("\n  note: run lockstep doctor with the same launcher; its check \"{}\" may show the cause",
                hint->check);
}

void add(Grouped& groups, const std::string& text, int rank) {
  const auto found = std::ranges::find(groups, text, &Grouped::value_type::first);
  if (found == groups.end()) {
    groups.push_back({text, {rank}});
  } else if (found->second.back() != rank) {
    found->second.push_back(rank);
  }
}

std::string ranges(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? std::to_string(numbers[i])
                                 : format("{}-{}", numbers[i], numbers[end - 1]));
    i = end;
  }
  return base::join(parts, ",");
}

std::string with_ranks(const std::string& text, const std::vector<int>& ranks, size_t world) {
  return ranks.size() == world ? text : format("rank {}: {}", ranges(ranks), text);
}

namespace {

constexpr const char* kVariable = "LOCKSTEP_ERRORS";

// A descriptor that was meant for a parent process may be another file of this process.
bool is_pipe(int descriptor) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 && (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode));
}

// The reader of a pipe may be stopped.
bool takes_more(int descriptor) {
  constexpr int kTakesWithin = 1000;  // milliseconds
  pollfd waited{descriptor, POLLOUT, 0};
  return ::poll(&waited, 1, kTakesWithin) == 1 && (waited.revents & POLLOUT) != 0;
}

// A link of another user could lead to any file, and a named pipe may have no reader.
int open_to_append(const char* path) {
  struct stat facts {};
  const bool link = ::lstat(path, &facts) == 0 && S_ISLNK(facts.st_mode);
  if (link && facts.st_uid != ::geteuid() && facts.st_uid != 0) return -1;
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  return ::open(path, link ? flags : flags | O_NOFOLLOW, 0666);
}

}  // namespace

std::string fault_as_json(const std::exception& error) {
  auto json = base::to_json(fault_of(error));
  json["exit"] = exit_status(error);
  return base::as_line(json);
}

std::string report_of(const std::exception& error) {
  return with_doctor(describe(error), fault_of(error).code);
}

void note_fault(const std::exception& error) noexcept {
  const char* place = std::getenv(kVariable);
  if (!place || !*place) return;
  std::signal(SIGPIPE, SIG_IGN);  // the error is printed in any case
  try {
    const auto line = fault_as_json(error) + "\n";
    if (const auto number = base::parse_number(place)) {
      if (is_pipe(*number) && takes_more(*number)) base::write_all(*number, line);
      return;
    }
    const base::Descriptor file(open_to_append(place));
    if (file) base::write_all(file.number(), line);
  } catch (const std::exception&) {  // the error is printed in any case
  }
}

}  // namespace lockstep::launch
