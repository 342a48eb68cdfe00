#include "course/workshop/process/interruption.h"

namespace lockstep::workshop {
namespace {

volatile std::sig_atomic_t noted = 0;

void note(int number) {
  noted = number;
}

}  // namespace

// without SA_RESTART: what waits looks up
Interruption::Interruption() {
  struct sigaction noting {};
  noting.sa_handler = note;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &noting, nullptr);
  }
}

Interruption::~Interruption() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

void Interruption::check() {
  if (noted != 0) throw Interrupted(noted);
}

}  // namespace lockstep::workshop
