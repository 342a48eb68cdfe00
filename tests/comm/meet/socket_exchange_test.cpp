// The ranks' first meeting without MPI: ranks as threads, and other processes that connect or answer.
#include "lockstep/comm/meet/exchange_client.h"
#include "lockstep/comm/meet/exchange_server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/meet/listen.h"
#include "lockstep/comm/meet/meeting_file.h"
#include "lockstep/comm/meet/wire.h"
#include "temp_folder.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

ExchangeOptions options(int rank, int world, std::chrono::milliseconds timeout = 60s,
                        const std::string& job_id = "") {
  return {
      .rank = rank, .world = world, .host = "n" + std::to_string(rank), .job_id = job_id, .timeout = timeout};
}

FindMeetingPlace port_of(const Listener& listener, const std::string& word = "") {
  return [=] { return MeetingPlace{.host = "127.0.0.1", .port = listener.port, .word = word}; };
}

/// What a rank's part ends with: "" or its error, with the status to leave with in front.
template <class Part>
std::future<std::string> ran(Part part) {
  return std::async(std::launch::async, [part]() -> std::string {
    try {
      part();
      return "";
    } catch (const Error& error) {
      return std::to_string(error.exit_status()) + " " + describe(error);
    }
  });
}

std::string outcome(std::future<std::string>& part) {
  return part.get();
}

bool holds(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    if (text.find(part) == std::string::npos) return false;
  }
  return true;
}

/// A process that listens at a port and does nothing else by default.
struct Service {
  Listener listener = listen_on("127.0.0.1");
  base::Descriptor socket{listener.socket};
};

class SocketExchange : public ::testing::Test {
 protected:
  auto serve(const ExchangeOptions& options, const std::string& word = "") {
    return serve_exchange({socket_.number()}, word, options);
  }
  auto join(const ExchangeOptions& options, const std::string& word = "") {
    return join_exchange([&] { return MeetingPlace{.socket = path_, .word = word}; }, options);
  }
  Wire connected() { return Wire(std::move(call_socket(path_).value())); }
  Wire admitted(int rank, int world) {
    Wire line = connected();
    line.send({.body = pack(own_hello(options(rank, world), ""))}, Clock::now() + 60s);
    EXPECT_EQ(line.receive(kLargestText, Clock::now() + 60s)->body, kAccepted);
    return line;
  }

  test::TempFolder folder_;
  std::string path_ = folder_.path() / "meeting" / "29500.sock";
  MeetingSocket socket_{path_};
};

TEST_F(SocketExchange, TextsGoToRankZeroAndBack) {
  constexpr int kWorld = 4;
  const std::string large(3'000'000, 'x');
  const auto part = [&](int rank, std::unique_ptr<launch::TextExchange> exchange) {
    for (int turn = 0; turn < 3; ++turn) {
      const auto texts = exchange->gather(rank == 2 ? large : std::to_string(rank + turn));
      if (rank == 0) {
        ASSERT_EQ(texts.size(), size_t{kWorld});
        EXPECT_EQ(texts[3], std::to_string(3 + turn));
        EXPECT_EQ(texts[2], large);
      }
      EXPECT_EQ(exchange->broadcast(rank == 0 ? large : ""), large);
    }
  };
  std::vector<std::future<std::string>> ranks;
  for (int rank = 1; rank < kWorld; ++rank)  // they connect before rank 0 accepts
    ranks.push_back(ran([&, rank] { part(rank, join(options(rank, kWorld))); }));
  part(0, serve(options(0, kWorld)));
  for (auto& rank : ranks) EXPECT_EQ(outcome(rank), "");
}

TEST_F(SocketExchange, WhoDoesNotComeIsNamedToAllThatCame) {
  auto first = ran([&] { serve(options(0, 4, 1s)); });
  auto third = ran([&] { join(options(2, 4, 1s)); });
  const std::string error = outcome(first);
  EXPECT_TRUE(holds(error, {"1 ranks 1 and 3 did not come", "within 1 s", "to do"})) << error;
  EXPECT_EQ(outcome(third), error);
}

TEST_F(SocketExchange, ARankThatDiesBeforeAllHaveComeEndsTheWaitForAll) {
  auto first = ran([&] { serve(options(0, 4, 10min)); });
  Wire lives = admitted(1, 4);
  { const Wire dies = admitted(2, 4); }
  EXPECT_TRUE(holds(outcome(first), {"1 rank 2 left while the ranks were joining"}));
  EXPECT_EQ(lives.receive(kLargestText, Clock::now() + 60s)->kind, WireMessage::error);
}

TEST_F(SocketExchange, NobodyThereIsSaidInTime) {
  const Listener closed = Service().listener;
  auto rank = ran([&] { join_exchange(port_of(closed), options(1, 2, 400ms)); });
  const std::string error = outcome(rank);
  EXPECT_TRUE(holds(error, {"nobody answered at 127.0.0.1", "within 0.4 s", "rank 0 did not come"})) << error;
}

TEST_F(SocketExchange, AForeignServiceIsCalledOneAtOnce) {
  Service service;
  std::thread greets([&] {
    const base::Descriptor guest(::accept(service.socket.number(), nullptr, nullptr));
    const std::string banner = "SSH-2.0-OpenSSH_9.2\x1b[31m\r\n";
    EXPECT_EQ(::send(guest.number(), banner.data(), banner.size(), 0), static_cast<ssize_t>(banner.size()));
    std::this_thread::sleep_for(200ms);
  });
  const auto began = Clock::now();
  auto rank = ran([&] { join_exchange(port_of(service.listener), options(1, 2, 10min)); });
  const std::string error = outcome(rank);
  greets.join();
  EXPECT_TRUE(holds(error, {"2 something else than this job answers at 127.0.0.1", "'SSH-2.0-OpenSSH_9.2",
                            "choose another MASTER_PORT"}))
      << error;
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_LT(Clock::now() - began, 2min);
}

TEST_F(SocketExchange, ASilentServiceIsGivenUpInTime) {
  Service service;  // the kernel takes the call, nobody speaks
  auto rank = ran([&] { join_exchange(port_of(service.listener), options(1, 2, 400ms)); });
  const std::string error = outcome(rank);
  EXPECT_TRUE(holds(error, {"1 something answers at 127.0.0.1", "not as rank 0", "does not answer"}))
      << error;
}

TEST_F(SocketExchange, OtherProcessesDoNotDisturb) {
  auto first = ran([&] { serve(options(0, 2, 60s, "8"), "new")->gather(""); });
  Wire scanner = connected();
  ASSERT_EQ(::send(scanner.number(), "GET / HTTP/1.0\r\n\r\n", 18, 0), 18);
  const Wire silent = connected();
  auto old = ran([&] { join(options(1, 2, 1s, "8"), "old"); });
  EXPECT_TRUE(holds(outcome(old), {"1 something answers", "not as rank 0"}));
  auto other = ran([&] { join(options(1, 2, 60s, "7"), "new"); });
  EXPECT_TRUE(holds(outcome(other), {"2 rank 1 (host n1", "belongs to job 7",
                                     "rank 0 (host n0) belongs to job 8", "a MASTER_PORT of its own"}));
  // a rank that was started over ssh knows no job id
  auto second = ran([&] { join(options(1, 2), "new")->gather(""); });
  EXPECT_EQ(outcome(first), "");
  EXPECT_EQ(outcome(second), "");
}

TEST_F(SocketExchange, AnotherUsersRankIsRejected) {
  auto first = ran([&] { serve(options(0, 2))->gather(""); });
  Wire other = connected();
  other.send({.body = pack(Hello{1, 2, ::geteuid() + 1, "", "", "n1", 1})}, Clock::now() + 60s);
  EXPECT_EQ(other.receive(kLargestText, Clock::now() + 60s)->kind, WireMessage::error);
  auto second = ran([&] { join(options(1, 2))->gather(""); });
  EXPECT_EQ(outcome(first), "");
  EXPECT_EQ(outcome(second), "");
}

TEST_F(SocketExchange, AConnectionOverTcpFromThisMachineIsRejected) {
  Service port;
  auto first = ran([&] {
    serve_exchange({socket_.number(), port.socket.number()}, "", options(0, 2))->gather("");
  });
  auto other = ran([&] { join_exchange(port_of(port.listener), options(1, 2, 1s)); });
  EXPECT_TRUE(holds(outcome(other), {"1 something answers", "not as rank 0"}));
  auto second = ran([&] { join(options(1, 2))->gather(""); });
  EXPECT_EQ(outcome(first), "");
  EXPECT_EQ(outcome(second), "");
}

TEST_F(SocketExchange, AnotherVersionIsNamed) {
  const Wire older = connected();
  ASSERT_EQ(::send(older.number(), "lockstep1T\0\0\0\0", 14, 0), 14);
  auto first = ran([&] { serve(options(0, 2, 200ms)); });
  EXPECT_TRUE(holds(outcome(first), {"another version of lockstep"}));
}

TEST_F(SocketExchange, WorldsThatDifferAreNamedWithWhatToDo) {
  auto first = ran([&] { serve(options(0, 3)); });
  auto second = ran([&] { join(options(1, 2)); });
  const std::string error = outcome(second);
  EXPECT_TRUE(holds(error, {"2 the ranks do not agree how many they are: 3 for rank 0", "2 for rank 1",
                            "to do", "the same WORLD_SIZE"}))
      << error;
  EXPECT_EQ(outcome(first), error);
}

TEST_F(SocketExchange, ARankMayComeOnlyOnce) {
  auto first = ran([&] { serve(options(0, 3, 1500ms)); });
  auto second = ran([&] { join(options(1, 3)); });
  std::this_thread::sleep_for(200ms);
  auto again = ran([&] { join(options(1, 3)); });
  const std::string errors = outcome(again) + outcome(second);  // whichever was the later one
  EXPECT_TRUE(holds(errors, {"2 two processes say that they are rank 1", "a RANK of its own"})) << errors;
  EXPECT_TRUE(holds(outcome(first), {"1 rank 2 did not come", "two processes say that they are rank 1"}));
}

TEST_F(SocketExchange, ARankMayHangUpAndCallAgain) {
  auto impatient = ran([&] { join(options(1, 2, 1s)); });
  EXPECT_TRUE(holds(outcome(impatient), {"1 something answers"})) << "nobody has opened";
  auto again = ran([&] { join(options(1, 2))->gather(""); });
  std::this_thread::sleep_for(200ms);  // both calls wait when rank 0 looks
  auto first = ran([&] { serve(options(0, 2))->gather(""); });
  EXPECT_EQ(outcome(again), "");
  EXPECT_EQ(outcome(first), "");
}

TEST_F(SocketExchange, ARankThatLeavesEndsItForAllAtOnce) {
  const auto began = Clock::now();
  auto first = ran([&] { serve(options(0, 3, 10min))->gather(""); });
  auto second = ran([&] {
    auto exchange = join(options(1, 3, 10min));
    exchange->gather("");
    exchange->broadcast("");
  });
  auto third = ran([&] { join(options(2, 3, 10min)); });  // and goes
  const std::string error = outcome(first);
  EXPECT_TRUE(holds(error, {"1 rank 2 left while the ranks were joining"})) << error;
  EXPECT_EQ(outcome(second), error);
  EXPECT_EQ(outcome(third), "");
  EXPECT_LT(Clock::now() - began, 2min);
}

TEST_F(SocketExchange, RankZerosLeavingIsNoticed) {
  auto first = ran([&] { serve(options(0, 2)); });  // and goes
  auto second = ran([&] { join(options(1, 2))->broadcast(""); });
  const std::string error = outcome(second);
  EXPECT_TRUE(holds(error, {"1 rank 0 left while the ranks were joining"})) << error;
  EXPECT_EQ(outcome(first), "");
}

TEST_F(SocketExchange, ASilentRankIsNamedInTime) {
  std::promise<void> done;
  auto first = ran([&] { serve(options(0, 2, 1500ms))->gather(""); });
  auto second = ran([&] {
    auto exchange = join(options(1, 2));
    done.get_future().wait();  // stopped, say
  });
  const std::string error = outcome(first);
  done.set_value();
  EXPECT_TRUE(holds(error, {"1 no word from rank 1 for 1.5 s"})) << error;
  outcome(second);
}

TEST_F(SocketExchange, AWorldOfTwoThousandMillionTakesNoMemory) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  auto first = ran([&] { serve(options(0, 2147483647, 200ms)); });
  const std::string error = outcome(first);
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_TRUE(holds(error, {"ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2147483638 more did not come"})) << error;
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 50 << 10);
}

TEST_F(SocketExchange, APlaceLeftOverIsLookedForAgain) {
  const Listener closed = Service().listener;
  Service foreign;
  std::thread greets([&] {
    const base::Descriptor guest(::accept(foreign.socket.number(), nullptr, nullptr));
    ::send(guest.number(), "* OK IMAP4\r\n", 12, 0);
    std::this_thread::sleep_for(200ms);
  });
  int calls = 0;
  const FindMeetingPlace find = [&]() -> std::optional<MeetingPlace> {
    ++calls;
    if (calls == 1) return std::nullopt;
    if (calls == 4) return MeetingPlace{.socket = path_, .word = "new"};
    return port_of(calls == 2 ? closed : foreign.listener, "old")();
  };
  auto first = ran([&] { serve(options(0, 2), "new")->gather(""); });
  auto second = ran([&] { join_exchange(find, options(1, 2))->gather(""); });
  EXPECT_EQ(outcome(second), "");
  EXPECT_EQ(outcome(first), "");
  EXPECT_EQ(calls, 4);
  greets.join();
}

}  // namespace
}  // namespace lockstep::comm
