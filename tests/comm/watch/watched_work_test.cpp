// What gloo does not end, though its time is over or the group is dead, is ended without it.
#include "lockstep/comm/watch/watched_work.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "refusal.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// As gloo's where two of its threads wait for each other.
class NeverOver : public c10d::Work {
 public:
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void mark_done() {
    future_->markCompleted(c10::IValue());
    finish();
  }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
};

// Whose end comes with the end of the first patience, as where a suspended job goes on.
class OverLate : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds timeout) override {
    if (isCompleted()) return Work::wait(timeout);
    try {
      return Work::wait(1ms);
    } catch (const c10::Error&) {
      finish();
      throw;
    }
  }
};

// A process that does nothing until it is killed.
class Idler {
 public:
  Idler() : pid_(::fork()) {
    while (pid_ == 0) ::pause();
  }
  ~Idler() {
    die();
    ::waitpid(pid_, nullptr, 0);
  }
  void die() const {
    ::kill(pid_, SIGKILL);
    siginfo_t end;
    ::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT);  // and stays a zombie
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

using Monitors = std::array<std::shared_ptr<PeerMonitor>, 3>;

// Those of the ranks of this node, of which `last` is the process of rank 2.
Monitors monitors_with(pid_t last) {
  std::vector<Peer> peers(3);
  for (int rank = 0; rank < 3; ++rank) {
    peers[rank].rank = rank;
    peers[rank].pid = rank == 2 ? last : ::getpid();
  }
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Monitors monitors;
  std::vector<std::thread> coming;
  for (int rank = 0; rank < 3; ++rank)
    coming.emplace_back([&, rank] { monitors[rank] = std::make_shared<PeerMonitor>(store, peers, rank); });
  for (auto& rank : coming) rank.join();
  return monitors;
}

struct Collectives {
  explicit Collectives(std::chrono::milliseconds limit) {
    monitor->on_death([this] { timeouts->cut_connections(); });
    watch = std::make_shared<CollectiveWatch>(
        monitor, Collective{"all-reduce", monitor->begin(c10d::OpType::ALLREDUCE), limit});
    timeouts->add(watch);
    work = c10::make_intrusive<WatchedWork>(inner, watch, timeouts, 0, c10d::OpType::ALLREDUCE);
  }
  ~Collectives() { monitor->on_death({}); }

  Idler last_rank;
  Monitors monitors = monitors_with(last_rank.pid());
  std::shared_ptr<PeerMonitor> monitor = monitors[0], mate = monitors[1];
  std::shared_ptr<TimeoutThread> timeouts = std::make_shared<TimeoutThread>(Connections{}, monitor);
  c10::intrusive_ptr<NeverOver> inner = c10::make_intrusive<NeverOver>();
  std::shared_ptr<CollectiveWatch> watch;
  c10::intrusive_ptr<WatchedWork> work;
};

TEST(TimeoutThread, WhatNeverEndsIsGivenUpAfterItsTime) {
  Collectives group(100ms);
  const auto begin = Clock::now();
  EXPECT_THROW(group.work->wait(::kNoTimeout), Error);
  EXPECT_LT(Clock::now() - begin, 2min);
  EXPECT_TRUE(group.work->isCompleted());
  EXPECT_FALSE(group.work->isSuccess());
  EXPECT_NE(group.work->exception(), nullptr);
  EXPECT_TRUE(group.monitor->is_dead());
}

TEST(TimeoutThread, WhatEndsAsThePatienceDoesIsNoFailure) {
  Collectives group(60s);
  const auto over_late = [&] {
    return WatchedWork(c10::make_intrusive<OverLate>(), group.watch, group.timeouts, 0,
                       c10d::OpType::ALLREDUCE);
  };
  EXPECT_TRUE(over_late().wait(::kNoTimeout));
  EXPECT_THROW(over_late().wait(1ms), c10::Error);  // the caller's own patience
  EXPECT_FALSE(group.monitor->is_dead());
}

// gloo may not see what a mate has seen.
TEST(TimeoutThread, ADeathThatAMateKnowsOfEndsWhatIsUnderWay) {
  Collectives group(10min);
  const auto begin = Clock::now();
  group.mate->publish_error("it met an error");
  const auto future = group.work->getFuture();
  future->wait();
  EXPECT_TRUE(future->hasError());
  EXPECT_THROW(group.work->wait(::kNoTimeout), Error);
  EXPECT_LT(Clock::now() - begin, 2min);
}

std::string error_of(WatchedWork& work) {
  return test::error_from<Error>([&] { work.wait(::kNoTimeout); }).what();
}

// Seen where the peer of a send was killed: gloo closed the connection, and never ended the send.
TEST(TimeoutThread, ADeathThatGlooNeverMeetsIsNamedLongBeforeTheTimeout) {
  Collectives group(10min);
  const auto begin = Clock::now();
  group.last_rank.die();
  const auto error = error_of(*group.work);
  EXPECT_NE(error.find("failed: rank 2"), std::string::npos) << error;
  EXPECT_NE(error.find("has died"), std::string::npos) << error;
  EXPECT_LT(Clock::now() - begin, 2min);
}

TEST(TimeoutThread, ARankThatLeftBeforeACollectiveIsNotWaitedFor) {
  Collectives group(10min);
  group.monitors[2]->leave();
  const auto error = error_of(*group.work);
  EXPECT_NE(error.find("rank 2"), std::string::npos) << error;
  EXPECT_NE(error.find("left the group before the first collective"), std::string::npos) << error;
}

TEST(TimeoutThread, ARankThatHasDoneItsPartMayLeave) {
  Collectives group(10min);
  group.monitors[2]->begin(c10d::OpType::ALLREDUCE);
  group.monitors[2]->leave();
  group.last_rank.die();
  EXPECT_FALSE(group.watch->waits_for_lost_rank());
}

}  // namespace
}  // namespace lockstep::comm
