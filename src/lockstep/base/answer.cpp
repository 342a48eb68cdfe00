#include "lockstep/base/answer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <thread>

#include "lockstep/base/descriptor.h"

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
bool take(Pipe& pipe) {
  std::array<char, 4096> part;
  const ssize_t n = ::read(pipe.read.number(), part.data(), part.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (pipe.text->size() < kMostText) pipe.text->append(part.data(), static_cast<size_t>(n));
  return n > 0;
}

void take_what_is_there(std::array<Pipe, 2>& pipes, std::chrono::milliseconds wait) {
  std::array<pollfd, 2> ready{pollfd{pipes[0].read.number(), POLLIN, 0},
                              pollfd{pipes[1].read.number(), POLLIN, 0}};
  if (::poll(ready.data(), ready.size(), static_cast<int>(wait.count())) <= 0) return;
  for (size_t i = 0; i < pipes.size(); ++i) {
    if (ready[i].revents && !take(pipes[i])) pipes[i].read.close();
  }
}

// whether it has ended, and how
bool has_ended(pid_t child, int& status) {
  const pid_t done = ::waitpid(child, &status, WNOHANG);
  return done == child || (done < 0 && errno != EINTR);
}

void wait_for(pid_t child, std::array<Pipe, 2>& pipes, Clock::time_point until, Answer& answer) {
  int status = 0;
  bool ended = false;
  while (!(ended = has_ended(child, status)) && Clock::now() < until) {
    const bool silent = !pipes[0].read && !pipes[1].read;
    silent ? std::this_thread::sleep_for(2ms) : take_what_is_there(pipes, kLook / 5);
  }
  if (!ended) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  for (const auto last = Clock::now() + kLook; (pipes[0].read || pipes[1].read) && Clock::now() < last;)
    take_what_is_there(pipes, kLook / 10);
  answer.end = ended ? Answer::left : Answer::late;
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
  if (started) wait_for(child, pipes, until, answer);
  return answer;
}

}  // namespace lockstep::base
