#include "tools/submit/interrupts.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace lockstep::submit {
namespace {

volatile sig_atomic_t interrupted = 0;
std::atomic<const std::string*> answer = nullptr;

void note(int) {
  const int before = errno;  // of the call that is interrupted
  interrupted = 1;
  const std::string* text = answer;
  [[maybe_unused]] const auto written = text ? ::write(STDERR_FILENO, text->data(), text->size()) : 0;
  errno = before;
}

bool is_ignored(int signal) {
  struct sigaction now = {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

Interrupts::Interrupts() {
  interrupted = 0;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    const bool hangup = kSignals[i] == SIGHUP;
    struct sigaction now = {};
    now.sa_handler = hangup && is_ignored(SIGHUP) ? SIG_IGN : note;
    now.sa_flags = hangup ? 0 : static_cast<int>(SA_RESETHAND);
    ::sigaction(kSignals[i], &now, &before_[i]);
  }
}

Interrupts::~Interrupts() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool Interrupts::came() {
  return interrupted != 0;
}

Interrupts::Answered::Answered(std::string text) : text_(std::move(text)) {
  answer = &text_;
}

Interrupts::Answered::~Answered() {
  answer = nullptr;
}

}  // namespace lockstep::submit
