#include "lockstep/cli/interrupts.h"

#include <unistd.h>

#include <atomic>

namespace lockstep::cli {
namespace {

volatile sig_atomic_t interrupted = 0;
std::atomic<const std::string*> answer = nullptr;

void note(int) {
  interrupted = 1;
  const std::string* text = answer;
  if (!text) return;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text->data(), text->size());
}

}  // namespace

Interrupts::Interrupts() {
  interrupted = 0;
  struct sigaction now = {};
  now.sa_handler = note;
  now.sa_flags = static_cast<int>(SA_RESETHAND);
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &now, &before_[i]);
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

}  // namespace lockstep::cli
