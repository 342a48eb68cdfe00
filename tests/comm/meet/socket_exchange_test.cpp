// The ranks' first meeting without MPI: ranks as threads, and whatever else may answer on a port.
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
#include "lockstep/comm/meet/wire.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

ExchangeOptions options(int rank, int world, std::chrono::milliseconds timeout = 60s) {
  return {.rank = rank, .world = world, .host = "n" + std::to_string(rank), .timeout = timeout};
}

FindMeetingPlace place_at(std::uint16_t port, const std::string& word = "") {
  return [=] { return MeetingPlace{"127.0.0.1", port, word}; };
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

/// Listens, and does nothing else unless it is told.
struct Service {
  Listener listener = listen_on("127.0.0.1");
  base::Descriptor socket{listener.socket};
};

TEST(SocketExchange, TextsGoToRankZeroAndBack) {
  constexpr int kWorld = 4;
  const Listener listener = listen_on("127.0.0.1");
  const std::string large(3'000'000, 'x');
  const auto part = [&](int rank, std::unique_ptr<launch::TextExchange> exchange) {
    for (int turn = 0; turn < 3; ++turn) {
      const auto texts = exchange->gather(rank == 2 ? large : std::to_string(rank + turn));
      if (rank == 0) {
        ASSERT_EQ(texts.size(), size_t{kWorld});
        EXPECT_EQ(texts[3], std::to_string(3 + turn));
        EXPECT_EQ(texts[2], large);
        EXPECT_EQ(exchange->address(), "127.0.0.1");
      }
      EXPECT_EQ(exchange->broadcast(rank == 0 ? large : ""), large);
    }
  };
  std::vector<std::future<std::string>> ranks;
  for (int rank = 1; rank < kWorld; ++rank)  // they knock before anybody opens
    ranks.push_back(ran([=] { part(rank, join_exchange(place_at(listener.port), options(rank, kWorld))); }));
  part(0, serve_exchange(listener, "", options(0, kWorld)));
  for (auto& rank : ranks) EXPECT_EQ(outcome(rank), "");
}

TEST(SocketExchange, WhoDoesNotComeIsNamedToAllThatCame) {
  const Listener listener = listen_on("127.0.0.1");
  auto first = ran([&] { serve_exchange(listener, "", options(0, 4, 1s)); });
  auto third = ran([&] { join_exchange(place_at(listener.port), options(2, 4, 1s)); });
  const std::string error = outcome(first);
  EXPECT_TRUE(holds(error, {"1 ranks 1 and 3 did not come", "within 1 s", "to do"})) << error;
  EXPECT_EQ(outcome(third), error);
}

TEST(SocketExchange, AnEarlyRankKeepsItsOwnTime) {
  const Listener listener = listen_on("127.0.0.1");
  auto first = ran([&] { serve_exchange(listener, "", options(0, 3, 8s)); });
  auto early = ran([&] { join_exchange(place_at(listener.port), options(1, 3, 700ms)); });
  const std::string error = outcome(early);
  EXPECT_TRUE(holds(error, {"1 not all 3 ranks came", "within 0.7 s"})) << error;
  EXPECT_NE(first.wait_for(0s), std::future_status::ready) << "rank 0 has more time";
  auto last = ran([&] { join_exchange(place_at(listener.port), options(2, 3, 8s))->gather(""); });
  outcome(first);
  outcome(last);
}

TEST(SocketExchange, NobodyThereIsSaidInTime) {
  const std::uint16_t closed = [] { return Service().listener.port; }();
  auto rank = ran([&] { join_exchange(place_at(closed), options(1, 2, 400ms)); });
  const std::string error = outcome(rank);
  EXPECT_TRUE(holds(error, {"nobody answered at 127.0.0.1", "within 0.4 s", "rank 0 did not come"})) << error;
}

TEST(SocketExchange, AForeignServiceIsCalledOneAtOnce) {
  Service service;
  std::thread greets([&] {
    const base::Descriptor guest(::accept(service.socket.number(), nullptr, nullptr));
    const std::string banner = "SSH-2.0-OpenSSH_9.2\x1b[31m\r\n";
    EXPECT_EQ(::send(guest.number(), banner.data(), banner.size(), 0), static_cast<ssize_t>(banner.size()));
    std::this_thread::sleep_for(200ms);
  });
  const auto began = Clock::now();
  auto rank = ran([&] { join_exchange(place_at(service.listener.port), options(1, 2, 10min)); });
  const std::string error = outcome(rank);
  greets.join();
  EXPECT_TRUE(holds(error, {"2 something else than this job answers at 127.0.0.1", "'SSH-2.0-OpenSSH_9.2",
                            "choose another MASTER_PORT"}))
      << error;
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_LT(Clock::now() - began, 2min);
}

TEST(SocketExchange, ASilentServiceIsGivenUpInTime) {
  Service service;  // the kernel takes the call, nobody speaks
  auto rank = ran([&] { join_exchange(place_at(service.listener.port), options(1, 2, 400ms)); });
  const std::string error = outcome(rank);
  EXPECT_TRUE(holds(error, {"1 something answers at 127.0.0.1", "not as rank 0", "says nothing"})) << error;
}

TEST(SocketExchange, StrangersDoNotDisturb) {
  const Listener listener = listen_on("127.0.0.1");
  auto first = ran([&] { serve_exchange(listener, "secret", options(0, 2))->gather(""); });
  Wire scanner = call("127.0.0.1", listener.port, Clock::now() + 60s);
  ASSERT_EQ(::send(scanner.number(), "GET / HTTP/1.0\r\n\r\n", 18, 0), 18);
  const Wire silent = call("127.0.0.1", listener.port, Clock::now() + 60s);
  auto wrong = ran([&] { join_exchange(place_at(listener.port, "guess"), options(1, 2, 1s)); });
  EXPECT_TRUE(holds(outcome(wrong), {"not as rank 0", "hangs up"}));
  auto second = ran([&] { join_exchange(place_at(listener.port, "secret"), options(1, 2))->gather(""); });
  EXPECT_EQ(outcome(first), "");
  EXPECT_EQ(outcome(second), "");
}

TEST(SocketExchange, WorldsThatDifferAreNamedWithWhatToDo) {
  const Listener listener = listen_on("127.0.0.1");
  auto first = ran([&] { serve_exchange(listener, "", options(0, 3)); });
  auto second = ran([&] { join_exchange(place_at(listener.port), options(1, 2)); });
  const std::string error = outcome(second);
  EXPECT_TRUE(holds(error, {"2 the ranks do not agree how many they are: 3 for rank 0", "2 for rank 1",
                            "to do", "the same WORLD_SIZE"}))
      << error;
  EXPECT_EQ(outcome(first), error);
}

TEST(SocketExchange, ARankMayComeOnlyOnce) {
  const Listener listener = listen_on("127.0.0.1");
  auto first = ran([&] { serve_exchange(listener, "", options(0, 3, 1500ms)); });
  auto second = ran([&] { join_exchange(place_at(listener.port), options(1, 3)); });
  std::this_thread::sleep_for(200ms);
  auto again = ran([&] { join_exchange(place_at(listener.port), options(1, 3)); });
  const std::string errors = outcome(again) + outcome(second);  // whichever was the later one
  EXPECT_TRUE(holds(errors, {"2 two processes say that they are rank 1", "a RANK of its own"})) << errors;
  EXPECT_TRUE(holds(outcome(first), {"1 rank 2 did not come", "two processes say that they are rank 1"}));
}

TEST(SocketExchange, ARankMayHangUpAndCallAgain) {
  const Listener listener = listen_on("127.0.0.1");
  auto impatient = ran([&] { join_exchange(place_at(listener.port), options(1, 2, 1s)); });
  EXPECT_TRUE(holds(outcome(impatient), {"1 something answers"})) << "nobody has opened";
  auto again = ran([&] { join_exchange(place_at(listener.port), options(1, 2))->gather(""); });
  std::this_thread::sleep_for(200ms);  // both calls wait when rank 0 looks
  auto first = ran([&] { serve_exchange(listener, "", options(0, 2))->gather(""); });
  EXPECT_EQ(outcome(again), "");
  EXPECT_EQ(outcome(first), "");
}

TEST(SocketExchange, ARankThatLeavesEndsItForAllAtOnce) {
  const Listener listener = listen_on("127.0.0.1");
  const auto began = Clock::now();
  auto first = ran([&] { serve_exchange(listener, "", options(0, 3, 10min))->gather(""); });
  auto second = ran([&] {
    auto exchange = join_exchange(place_at(listener.port), options(1, 3, 10min));
    exchange->gather("");
    exchange->broadcast("");
  });
  auto third = ran([&] { join_exchange(place_at(listener.port), options(2, 3, 10min)); });  // and goes
  const std::string error = outcome(first);
  EXPECT_TRUE(holds(error, {"1 rank 2 left while the ranks were joining"})) << error;
  EXPECT_EQ(outcome(second), error);
  EXPECT_EQ(outcome(third), "");
  EXPECT_LT(Clock::now() - began, 2min);
}

TEST(SocketExchange, RankZerosLeavingIsNoticed) {
  const Listener listener = listen_on("127.0.0.1");
  auto first = ran([&] { serve_exchange(listener, "", options(0, 2)); });  // and goes
  auto second = ran([&] { join_exchange(place_at(listener.port), options(1, 2))->broadcast(""); });
  const std::string error = outcome(second);
  EXPECT_TRUE(holds(error, {"1 rank 0 left while the ranks were joining"})) << error;
  EXPECT_EQ(outcome(first), "");
}

TEST(SocketExchange, ASilentRankIsNamedInTime) {
  const Listener listener = listen_on("127.0.0.1");
  std::promise<void> done;
  auto first = ran([&] { serve_exchange(listener, "", options(0, 2, 1500ms))->gather(""); });
  auto second = ran([&] {
    auto exchange = join_exchange(place_at(listener.port), options(1, 2));
    done.get_future().wait();  // stopped, say
  });
  const std::string error = outcome(first);
  done.set_value();
  EXPECT_TRUE(holds(error, {"1 no word from rank 1 for 1.5 s"})) << error;
  outcome(second);
}

TEST(SocketExchange, AWorldOfTwoThousandMillionTakesNoMemory) {
  const Listener listener = listen_on("127.0.0.1");
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  auto first = ran([&] { serve_exchange(listener, "", options(0, 2147483647, 200ms)); });
  const std::string error = outcome(first);
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_TRUE(holds(error, {"ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2147483638 more did not come"})) << error;
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 50 << 10);
}

TEST(SocketExchange, APlaceLeftOverIsAskedForAgain) {
  const std::uint16_t closed = [] { return Service().listener.port; }();
  Service foreign;
  std::thread greets([&] {
    const base::Descriptor guest(::accept(foreign.socket.number(), nullptr, nullptr));
    ::send(guest.number(), "* OK IMAP4\r\n", 12, 0);
    std::this_thread::sleep_for(200ms);
  });
  const Listener listener = listen_on("127.0.0.1");
  int asked = 0;
  const FindMeetingPlace find = [&]() -> std::optional<MeetingPlace> {
    ++asked;
    if (asked == 1) return std::nullopt;
    const std::uint16_t port = asked == 2 ? closed : asked == 3 ? foreign.listener.port : listener.port;
    return MeetingPlace{"127.0.0.1", port, asked < 4 ? "old" : "new"};
  };
  auto first = ran([&] { serve_exchange(listener, "new", options(0, 2))->gather(""); });
  auto second = ran([&] { join_exchange(find, options(1, 2))->gather(""); });
  EXPECT_EQ(outcome(second), "");
  EXPECT_EQ(outcome(first), "");
  EXPECT_EQ(asked, 4);
  greets.join();
}

}  // namespace
}  // namespace lockstep::comm
