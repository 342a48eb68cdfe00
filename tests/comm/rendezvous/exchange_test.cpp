// The ranks' first meeting without MPI: ranks as threads, and other services at rank 0's address.
#include "lockstep/comm/rendezvous/exchange.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/rendezvous/network.h"
#include "lockstep/comm/rendezvous/store.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

Member member(int rank, int world, const std::string& job_id = "", uid_t user = 7) {
  return {.rank = rank, .world = world, .host = "n" + std::to_string(rank), .job_id = job_id, .user = user};
}

/// What a rank's part ends with: "" or its error, with the status to leave with in front.
std::future<std::string> ran(std::function<void()> part) {
  return std::async(std::launch::async, [part = std::move(part)]() -> std::string {
    try {
      part();
      return "";
    } catch (const Error& error) {
      return std::to_string(error.exit_status()) + " " + describe(error);
    }
  });
}

bool holds(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts)
    if (text.find(part) == std::string::npos) return false;
  return true;
}

class Exchange : public ::testing::Test {
 protected:
  std::unique_ptr<launch::TextExchange> meet(const Member& own, std::chrono::milliseconds timeout = 60s) {
    return join_over(store_, own, {.timeout = timeout});
  }
  StorePtr store_ = c10::make_intrusive<c10d::HashStore>();
};

TEST_F(Exchange, TextsGoToRankZeroAndBack) {
  constexpr int kWorld = 4;
  const std::string large(3'000'000, 'x');
  const auto part = [&](int rank) {
    const auto exchange = meet(member(rank, kWorld));
    for (int turn = 0; turn < 3; ++turn) {
      const auto texts = exchange->gather(rank == 2 ? large : std::to_string(rank + turn));
      if (rank == 0) {
        ASSERT_EQ(texts.size(), size_t{kWorld});
        EXPECT_EQ(texts[3], std::to_string(3 + turn));
        EXPECT_EQ(texts[2], large);
      }
      EXPECT_EQ(exchange->broadcast(rank == 0 ? large : ""), large);
    }
    EXPECT_EQ(exchange->all_gather(std::to_string(rank)), (std::vector<std::string>{"0", "1", "2", "3"}));
  };
  std::vector<std::future<std::string>> ranks;
  for (int rank = kWorld - 1; rank >= 0; --rank) ranks.push_back(ran([&, rank] { part(rank); }));
  for (auto& rank : ranks) EXPECT_EQ(rank.get(), "");
}

TEST_F(Exchange, WhoDoesNotComeIsNamedToAllThatCame) {
  auto first = ran([&] { meet(member(0, 4), 1s); });
  auto third = ran([&] { meet(member(2, 4), 1s); });
  const std::string error = first.get();
  EXPECT_TRUE(holds(error, {"1 ranks 1 and 3 did not join", "within 1 s", "hint"})) << error;
  EXPECT_EQ(third.get(), error);
}

TEST_F(Exchange, ARankOfAnotherJobOrUserIsRejectedAndDisturbsNobody) {
  auto first = ran([&] { meet(member(0, 2, "8"))->gather(""); });
  const std::string other = ran([&] { meet(member(1, 2, "7")); }).get();
  EXPECT_TRUE(holds(other, {"2 rank 1 (host n1", "belongs to job 7", "rank 0 (host n0) belongs to job 8",
                            "set a different MASTER_PORT"}))
      << other;
  const std::string user = ran([&] { meet(member(1, 2, "8", 1234)); }).get();
  EXPECT_TRUE(holds(user, {"2 rank 1 (host n1", "belongs to job 8 of user id 1234"})) << user;
  // a rank that was started over ssh knows no job id
  auto second = ran([&] { meet(member(1, 2))->gather(""); });
  EXPECT_EQ(first.get(), "");
  EXPECT_EQ(second.get(), "");
}

TEST_F(Exchange, WorldsThatDifferAreNamedWithWhatToDo) {
  auto first = ran([&] { meet(member(0, 3)); });
  const std::string error = ran([&] { meet(member(1, 2)); }).get();
  EXPECT_TRUE(holds(error, {"2 the ranks have different world sizes: 3 on rank 0", "2 on rank 1", "hint",
                            "the same WORLD_SIZE"}))
      << error;
  EXPECT_EQ(first.get(), error);
}

TEST_F(Exchange, ARankMayComeOnlyOnce) {
  auto first = ran([&] { meet(member(0, 3), 1500ms); });
  auto second = ran([&] { meet(member(1, 3)); });
  std::this_thread::sleep_for(200ms);
  auto again = ran([&] { meet(member(1, 3)); });
  const std::string error = first.get();
  EXPECT_TRUE(holds(error, {"1 rank 2 did not join", "two processes have rank 1"})) << error;
  const std::string errors = again.get() + second.get();
  EXPECT_TRUE(holds(errors, {"2 two processes have rank 1", "set a different RANK"})) << errors;
}

TEST_F(Exchange, ARankThatAnErrorEndsEndsItForAllAtOnce) {
  const auto began = Clock::now();
  const auto part = [&](int rank) {
    const auto exchange = meet(member(rank, 3), 10min);
    if (rank == 2) throw Error("its own");
    exchange->gather("");
    exchange->broadcast("");
  };
  auto first = ran([&] { part(0); }), second = ran([&] { part(1); }), third = ran([&] { part(2); });
  const std::string error = first.get();
  EXPECT_TRUE(holds(error, {"1 rank 2 left while the ranks were joining"})) << error;
  EXPECT_EQ(second.get(), error);
  EXPECT_TRUE(holds(third.get(), {"1 ", "its own"}));
  EXPECT_LT(Clock::now() - began, 2min);
}

pid_t pid_of_the_dead() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST_F(Exchange, ARankThatIsKilledBeforeAllHaveComeEndsTheWaitForAll) {
  auto killed = member(1, 3);
  killed.pid = pid_of_the_dead();
  const ExchangeOptions options{.timeout = 60s, .one_machine = true};
  const auto began = Clock::now();
  auto first = ran([&] { join_over(store_, member(0, 3), options); });
  auto second = ran([&] { join_over(store_, killed, options); });
  for (const auto& error : {first.get(), second.get()})
    EXPECT_TRUE(holds(error, {"1 ", "rank 1", "ended while the ranks were joining"})) << error;
  EXPECT_LT(Clock::now() - began, 30s);
}

TEST_F(Exchange, RankZerosKillingIsNoticed) {
  auto killed = member(0, 2);
  killed.pid = pid_of_the_dead();
  const ExchangeOptions options{.timeout = 60s, .one_machine = true};
  auto first = ran([&] { join_over(store_, killed, {.timeout = 2s}); });
  auto second = ran([&] { join_over(store_, member(1, 2), options)->broadcast(""); });
  const auto error = second.get();
  EXPECT_TRUE(holds(error, {"1 ", "rank 0", "ended while the ranks were joining"})) << error;
}

TEST_F(Exchange, ASilentRankIsNamedInTime) {
  std::promise<void> done;
  auto first = ran([&] { meet(member(0, 2), 1500ms)->gather(""); });
  auto second = ran([&] {
    const auto exchange = meet(member(1, 2));
    done.get_future().wait();  // stopped, say
  });
  const std::string error = first.get();
  done.set_value();
  EXPECT_TRUE(holds(error, {"1 rank 1 did not respond within 1.5 s"})) << error;
  second.get();
}

TEST_F(Exchange, AWorldOfTwoThousandMillionTakesNoMemory) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const std::string error = ran([&] { meet(member(0, 2147483647), 200ms); }).get();
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_TRUE(holds(error, {"ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2147483638 more did not join"})) << error;
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 50 << 10);
}

/// Another service at rank 0's address, in a thread: what it says to whoever connects.
class OtherService {
 public:
  explicit OtherService(std::string says) {
    thread_ = std::thread([this, says = std::move(says)] {
      std::vector<base::Descriptor> guests;
      while (true) {
        guests.emplace_back(::accept(listener_.socket.number(), nullptr, nullptr));
        if (!guests.back()) return;
        if (!says.empty()) ::send(guests.back().number(), says.data(), says.size(), MSG_NOSIGNAL);
      }
    });
  }
  ~OtherService() {
    ::shutdown(listener_.socket.number(), SHUT_RDWR);
    thread_.join();
  }
  std::string met_by(const Member& own, std::chrono::milliseconds timeout) const {
    return ran([&] { connect_store(own, "127.0.0.1", listener_.port, timeout); }).get();
  }

 private:
  Listener listener_ = listen_on("127.0.0.1");
  std::thread thread_;
};

TEST(ConnectStore, NobodyAndAnotherServiceAreGivenUpInTime) {
  const QuietJoin quiet;
  const auto port = listen_on("127.0.0.1").port;
  const std::string nobody = ran([&] { connect_store(member(1, 2), "127.0.0.1", port, 400ms); }).get();
  EXPECT_TRUE(holds(nobody, {"1 rank 0 did not answer at 127.0.0.1", "within 0.4 s"})) << nobody;
  for (const char* says : {"", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    const std::string error = OtherService(says).met_by(member(1, 2), 1500ms);
    EXPECT_TRUE(holds(error, {"1 127.0.0.1", "did not answer as rank 0", "a different MASTER_PORT"}))
        << error;
  }
}

}  // namespace
}  // namespace lockstep::comm
