#include "nccl/comm.h"

#include <sched.h>

#include <chrono>

#include "nccl/errors.h"
#include "nccl/names.h"
#include "nccl/settings.h"

namespace lab::nccl {
namespace {

constexpr int kYields = 20;
constexpr std::chrono::milliseconds kNap{100};  // then the dead are looked for

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

bool shows(Death death, const Facts& own, const Facts& peer) {
  if (death == Death::network) return std::string(own.host) != peer.host;
  return death == Death::error;
}

}  // namespace

void Comm::set_board(BoardPtr opened) {
  const std::lock_guard lock(board_mutex_);
  board = std::move(opened);
}

void Comm::wait(Bell& bell, const std::function<bool()>& ready, Waiter waiter) {
  for (int tries = 0;; ++tries) {
    const auto heard = bell.heard();
    if (ready()) return;
    if (stopped(waiter)) throw Aborted{};
    if (tries < kYields) {
      ::sched_yield();
    } else {
      bell.sleep(heard, kNap);
      look_for_dead();
    }
  }
}

void Comm::wait_for_abort() {
  wait(own().bell, [] { return false; });
  throw Aborted{};
}

void Comm::barrier() {
  const auto all = ++barriers_ * static_cast<std::uint64_t>(size);
  if (board->arrivals.fetch_add(1) + 1 == all) return board->bell.ring();
  wait(board->bell, [&] { return board->arrivals >= all; });
}

void Comm::talk() {
  const auto all = ++talks_ * static_cast<std::uint64_t>(size);
  if (board->talks.fetch_add(1) + 1 == all) return board->bell.ring();
  wait(
      board->bell, [&] { return board->talks >= all; }, Waiter::host);
}

void Comm::wake() {
  turns.stop();
  const std::lock_guard lock(board_mutex_);
  if (!board) return;
  board->bell.ring();
  own().bell.ring();
}

void Comm::abort() {
  aborted_ = true;
  wake();
}

void Comm::revoke() {
  revoked = true;
  wake();
}

void Comm::fail(ncclResult_t error, const std::string& text) {
  int none = ncclSuccess;
  if (error_.compare_exchange_strong(none, error)) refuse(error, text);
}

ncclResult_t Comm::state() {
  look_for_dead();
  const int error = error_;
  return static_cast<ncclResult_t>(error != ncclSuccess ? error : progress.load());
}

// A process that left in good order is no dead one.
void Comm::look_for_dead() {
  const auto death = settings().death;
  if (death == Death::hang || progress == ncclInProgress || !board) return;
  const auto now = now_ms();
  if (now - looked_at_ < kNap.count()) return;
  looked_at_ = now;
  for (int peer = 0; peer < size; ++peer) {
    const auto& facts = seat(peer).facts;
    if (peer == rank || seat(peer).left || !shows(death, own().facts, facts)) continue;
    if (is_creator_gone({facts.pid_namespace, facts.process}))
      fail(ncclRemoteError,
           formatted("rank %d of %s is gone: process %d", peer, name.c_str(), facts.process));
  }
}

}  // namespace lab::nccl
