// Who may meet: this user's processes of this machine, and those elsewhere that know the job's secret.
#include "lockstep/comm/meet/secret.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/meet/exchange_client.h"
#include "lockstep/comm/meet/exchange_server.h"
#include "lockstep/comm/meet/peer_user.h"
#include "lockstep/comm/meet/sealed_store.h"
#include "lockstep/comm/meet/wire.h"
#include "temp_folder.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr uid_t kNobody = 65534;

/// The sockets that this thread makes are another user's meanwhile.
struct AsAnotherUser {
  AsAnotherUser() { ::setfsuid(kNobody); }
  ~AsAnotherUser() { ::setfsuid(::geteuid()); }
};

struct Variable {
  Variable(const char* name, const std::string& value) : name(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name); }
  const char* name;
};

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::to_string(error.exit_status()) + " " + describe(error);
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ExchangeOptions member(int rank, int world, bool asks_kernel = true) {
  return {.rank = rank, .world = world, .host = "a", .timeout = 60s, .asks_kernel = asks_kernel};
}

FindMeetingPlace secret_place_at(std::uint16_t port, const std::string& word = "") {
  return [=] { return MeetingPlace{"127.0.0.1", port, word}; };
}

std::future<std::string> rank_zero(const Listener& listener, const ExchangeOptions& options,
                                   const std::string& word = "") {
  return std::async(std::launch::async, [=] {
    return refusal([&] {
      const auto exchange = serve_exchange(listener, word, options);
      exchange->broadcast("all");
      exchange->gather("");  // stays until all have heard it
    });
  });
}

/// What rank 0 says to all.
std::string heard(const FindMeetingPlace& find, const ExchangeOptions& options) {
  const auto exchange = join_exchange(find, options);
  const auto text = exchange->broadcast("");
  exchange->gather("");
  return text;
}

Wire called(const Listener& listener) {
  return call("127.0.0.1", listener.port, Clock::now() + 60s);
}

TEST(PeerUser, IsKnownOfThisMachinesConnections) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    Listener listener;
    try {
      listener = listen_on(address);
    } catch (const Error&) {
      continue;  // no IPv6 here
    }
    const base::Descriptor socket(listener.socket);
    const Wire caller = call(address, listener.port, Clock::now() + 60s);
    const base::Descriptor accepted(::accept(socket.number(), nullptr, nullptr));
    EXPECT_EQ(user_at_other_end(accepted.number()), ::geteuid());
    EXPECT_EQ(user_at_other_end(caller.number()), ::geteuid());
  }
}

TEST(SocketExchange, AnotherUsersProcessIsNobodyOfTheJob) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes another user's sockets";
  const Listener listener = listen_on("127.0.0.1");
  auto first = rank_zero(listener, member(0, 2));
  {
    const AsAnotherUser other;
    Wire stranger = called(listener);
    const Hello as_rank_1{1, 2, "", "nonce", "a", "1"}, of_another_world{1, 7, "", "nonce", "a", "1"};
    for (const auto& hello : {as_rank_1, of_another_world})
      stranger.send({.body = pack(hello)}, Clock::now() + 60s);
    EXPECT_THROW(stranger.receive(kLargestText, Clock::now() + 60s), Wire::Gone);
  }
  EXPECT_EQ(heard(secret_place_at(listener.port), member(1, 2)), "all");
  EXPECT_EQ(first.get(), "");
}

TEST(SocketExchange, AnotherUsersRankZeroIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes another user's sockets";
  auto listener = [] {
    const AsAnotherUser other;
    return listen_on("127.0.0.1");
  }();
  auto theirs = std::async(std::launch::async, [&] {
    const AsAnotherUser other;
    const base::Descriptor socket(listener.socket);
    Wire line(base::Descriptor(::accept(socket.number(), nullptr, nullptr)));
    line.receive(kLargestText, Clock::now() + 60s);
    line.send({.body = kSeated}, Clock::now() + 60s);
    line.receive(kLargestText, Clock::now() + 60s);
  });
  const auto error = refusal([&] { join_exchange(secret_place_at(listener.port), member(1, 2)); });
  EXPECT_TRUE(says(error, "2 another user's process answers at 127.0.0.1")) << error;
  EXPECT_THROW(theirs.get(), Wire::Gone);
}

// The kernel gives the socket of a process that has gone to root.
TEST(SocketExchange, AStrangerWhoHasGoneIsNotRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes another user's sockets";
  const Variable secret("LOCKSTEP_SECRET", "a secret of some length");
  const Listener listener = listen_on("127.0.0.1");
  {
    const AsAnotherUser other;
    Wire stranger = called(listener);
    stranger.send({.body = pack(Hello{1, 2, "", "nonce", "a", "1"})}, Clock::now() + 60s);
    stranger.send({.body = std::string(6000, 'x')}, Clock::now() + 60s);
  }
  auto first = rank_zero(listener, member(0, 2));
  EXPECT_EQ(heard(secret_place_at(listener.port), member(1, 2)), "all");
  EXPECT_EQ(first.get(), "");
}

TEST(SocketExchange, AStrangersCallDoesNotEndARankZeroWithoutASecret) {
  const Variable home("HOME", "");
  ::unsetenv("XDG_CONFIG_HOME");
  const Listener listener = listen_on("127.0.0.1");
  auto options = member(0, 2, false);
  options.timeout = 1s;
  auto first = rank_zero(listener, options);
  Wire stranger = called(listener);
  stranger.send({.body = pack(Hello{1, 2, "", "nonce", "a", "1"})}, Clock::now() + 60s);
  EXPECT_THROW(stranger.receive(kLargestText, Clock::now() + 60s), Wire::Gone);
  const auto error = first.get();
  EXPECT_TRUE(says(error, "1 rank 1 did not come")) << error;
  EXPECT_TRUE(says(error, "has to prove that it belongs to the job")) << error;
}

TEST(SocketExchange, AnotherVersionsCallIsCalledOne) {
  const Listener listener = listen_on("127.0.0.1");
  auto options = member(0, 2);
  options.timeout = 1s;
  auto first = rank_zero(listener, options);
  const Wire older = called(listener);
  ASSERT_EQ(::send(older.number(), "lockstep1T\0\0\0\0", 14, 0), 14);
  const auto error = first.get();
  EXPECT_TRUE(says(error, "somebody called with another version of lockstep")) << error;
}

TEST(SocketExchange, TenThousandStrangersChangeNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes another user's sockets";
  const Listener listener = listen_on("127.0.0.1");
  auto first = rank_zero(listener, member(0, 3));
  auto second =
      std::async(std::launch::async, [&] { return heard(secret_place_at(listener.port), member(1, 3)); });
  {
    const AsAnotherUser other;
    for (int i = 0; i < 10'000; ++i) {
      Wire stranger = called(listener);
      stranger.send({.body = pack(Hello{2, 3, "", "nonce", "a", "1"})}, Clock::now());
    }
  }
  EXPECT_EQ(heard(secret_place_at(listener.port), member(2, 3)), "all");
  EXPECT_EQ(second.get(), "all");
  EXPECT_EQ(first.get(), "");
}

TEST(SocketExchange, WhomTheKernelDoesNotKnowHasToKnowTheSecret) {
  const Variable secret("LOCKSTEP_SECRET", "a secret of some length");
  for (const std::string word : {"", "the word of a meeting file"}) {
    const Listener listener = listen_on("127.0.0.1");
    auto first = rank_zero(listener, member(0, 2, false), word);
    Wire stranger = called(listener);
    const Hello hello{1, 2, mark_of(word), "nonce", "a", "1"};
    stranger.send({.body = pack(hello)}, Clock::now() + 60s);
    const auto challenge = unpack_challenge(stranger.receive(kLargestText, Clock::now() + 60s)->body);
    ASSERT_TRUE(challenge.has_value());
    stranger.send({.body = callers_proof("another secret", hello, challenge->nonce)}, Clock::now() + 60s);
    EXPECT_THROW(stranger.receive(kLargestText, Clock::now() + 60s), Wire::Gone);
    EXPECT_EQ(heard(secret_place_at(listener.port, word), member(1, 2, false)), "all");
    EXPECT_EQ(first.get(), "");
  }
}

TEST(SocketExchange, RankZeroHasToKnowItToo) {
  const Variable secret("LOCKSTEP_SECRET", "a secret of some length");
  for (const bool asks_for_proof : {true, false}) {
    const Listener listener = listen_on("127.0.0.1");
    auto theirs = std::async(std::launch::async, [&] {
      const base::Descriptor socket(listener.socket);
      Wire line(base::Descriptor(::accept(socket.number(), nullptr, nullptr)));
      const auto hello = line.receive(kLargestText, Clock::now() + 60s);
      const auto proof = rank_zeros_proof("a guess", *unpack_hello(hello->body), "n");
      line.send({.body = asks_for_proof ? pack(Challenge{"n", proof}) : kSeated}, Clock::now() + 60s);
      line.receive(kLargestText, Clock::now() + 60s);
    });
    const auto error = refusal([&] { join_exchange(secret_place_at(listener.port), member(1, 2, false)); });
    EXPECT_TRUE(says(error, asks_for_proof ? "2 something that does not know this job's secret answers"
                                           : "2 something that gives no proof answers"))
        << error;
    EXPECT_THROW(theirs.get(), Wire::Gone);
  }
}

TEST(Secret, IsOneFileOfThisUsersAlone) {
  const test::TempFolder home;
  const Variable variable("HOME", home.path());
  ::unsetenv("XDG_CONFIG_HOME");
  const auto secret = job_secret();
  EXPECT_EQ(secret.size(), 32U);  // without the line's end, which a shell takes from $(cat secret)
  EXPECT_EQ(job_secret(), secret);
  const auto path = home / ".config/lockstep/secret";
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  ::chmod(path.c_str(), 0640);
  EXPECT_TRUE(says(refusal([] { job_secret(); }),
                   "2 the secret by which ranks on several nodes know each other "
                   "cannot be used: others may use it"));
  home.write(".config/lockstep/secret", std::string(5000, 'x'));
  ::chmod(path.c_str(), 0600);
  EXPECT_TRUE(says(refusal([] { job_secret(); }), "too long"));
  home.write(".config/lockstep/secret", "short");
  ::chmod(path.c_str(), 0600);
  EXPECT_TRUE(says(refusal([] { job_secret(); }), "too short"));
  {
    const Variable given("LOCKSTEP_SECRET", "the scheduler's own words");
    EXPECT_EQ(job_secret(), "the scheduler's own words");
  }
  const Variable given("LOCKSTEP_SECRET", "1234");
  EXPECT_TRUE(says(refusal([] { job_secret(); }), "2 LOCKSTEP_SECRET is too short"));
}

TEST(Secret, SealsDifferWithEachText) {
  const auto one = seal("k", {"a", "b"});
  EXPECT_TRUE(is_same_seal(one, seal("k", {"a", "b"})));
  for (const auto& other : {seal("l", {"a", "b"}), seal("k", {"ab", ""}), seal("k", {"a"}), std::string()})
    EXPECT_FALSE(is_same_seal(one, other));
}

TEST(SealedStore, TakesNoValueOfAStrangers) {
  const auto open = c10::make_intrusive<c10d::HashStore>();
  const auto store = c10::make_intrusive<SealedStore>("secret", open);
  const auto other = store->clone();
  store->set("address", "node 1");
  EXPECT_EQ(other->get_to_str("address"), "node 1");
  EXPECT_EQ(store->add("come", 2), 2);
  EXPECT_EQ(other->add("come", 1), 3);
  EXPECT_EQ(store->get_to_str("come"), "3");
  EXPECT_EQ(std::string(store->compareSet("first", std::string(), "me")), "me");
  EXPECT_EQ(std::string(other->compareSet("first", "you", "them")), "me");
  EXPECT_EQ(std::string(other->compareSet("first", "me", "them")), "them");

  const std::string prefix = seal("secret", {"values"}) + "/";
  const auto theirs = open->get(prefix + "address");
  open->set(prefix + "other", theirs);  // heard, and said of another key
  EXPECT_THROW(store->get("other"), std::exception);
  for (const std::string value : {"node 2", "", "15"}) {
    open->set(prefix + "address", std::vector<uint8_t>(value.begin(), value.end()));
    EXPECT_THROW(store->get("address"), std::exception) << value;
  }
}

}  // namespace
}  // namespace lockstep::comm
