#include "lockstep/base/answer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::base {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr size_t kMostText = 1 << 20;
constexpr auto kLook = 100ms;  // a grandchild may hold a pipe open for ever

struct Pipe {
  Descriptor read, write;
  std::string* text;

  explicit Pipe(std::string& into) : text(&into) {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
  }
};

// false at its end
bool take_part(Pipe& pipe) {
  std::array<char, 4096> part;
  const ssize_t n = ::read(pipe.read.number(), part.data(), part.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (pipe.text->size() < kMostText) pipe.text->append(part.data(), static_cast<size_t>(n));
  return n > 0;
}

bool any_open(const std::array<Pipe, 2>& pipes) {
  return pipes[0].read || pipes[1].read;
}

// false where nothing came
bool take_what_is_there(std::array<Pipe, 2>& pipes, std::chrono::milliseconds wait) {
  std::array<pollfd, 2> ready{pollfd{pipes[0].read.number(), POLLIN, 0},
                              pollfd{pipes[1].read.number(), POLLIN, 0}};
  if (::poll(ready.data(), ready.size(), static_cast<int>(wait.count())) <= 0) return false;
  for (size_t i = 0; i < pipes.size(); ++i) {
    if (ready[i].revents && !take_part(pipes[i])) pipes[i].read.close();
  }
  return true;
}

// What lies in the pipes when the program has ended, however slow we are; a grandchild may go on and on.
void take_the_rest(std::array<Pipe, 2>& pipes) {
  const auto until = Clock::now() + kLook;
  while (any_open(pipes)) {
    const bool late = Clock::now() > until;
    if (!take_what_is_there(pipes, late ? 0ms : kLook / 10) && late) return;
    for (auto& pipe : pipes) {
      if (pipe.text->size() >= kMostText) pipe.read.close();
    }
  }
}

// whether it has ended, and how
bool has_ended(pid_t child, int& status) {
  const pid_t done = ::waitpid(child, &status, WNOHANG);
  if (done < 0 && errno == EINTR) return false;
  if (done < 0) status = 255 << 8;  // where SIGCHLD is ignored nobody knows
  return done != 0;
}

// A wrapper's own children go with it where they are in its group.
void end(pid_t child, const Program& program, int& status) {
  log::debug(format("{} (process {}) did not answer in time: sending SIGKILL", program.argv[0], child));
  ::kill(program.apart ? -child : child, SIGKILL);
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
}

void wait_for(pid_t child, const Program& program, std::array<Pipe, 2>& pipes, Clock::time_point until,
              Answer& answer) {
  int status = 0;
  bool ended = false;
  while (!(ended = has_ended(child, status)) && Clock::now() < until) {
    if (any_open(pipes))
      take_what_is_there(pipes, kLook / 5);
    else
      std::this_thread::sleep_for(2ms);
  }
  if (!ended) end(child, program, status);
  take_the_rest(pipes);
  answer.end = ended ? Answer::left : Answer::late;
  answer.whole = !pipes[0].read && answer.output.size() < kMostText;
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Answer ask(const std::vector<std::string>& argv, std::chrono::milliseconds timeout) {
  return ask(Program{.argv = argv}, timeout);
}

Answer ask(Program program, std::chrono::milliseconds timeout) {
  Answer answer;
  std::array<Pipe, 2> pipes{Pipe(answer.output), Pipe(answer.errors)};
  if (program.argv.empty() || !pipes[0].read || !pipes[1].read) return answer;
  const auto until = Clock::now() + timeout;
  pid_t child = -1;
  program.output = pipes[0].write.number();
  program.errors = pipes[1].write.number();
  const bool started = start_program(program, child) == 0;
  for (auto& pipe : pipes) pipe.write.close();
  if (started) wait_for(child, program, pipes, until, answer);
  return answer;
}

}  // namespace lockstep::base
