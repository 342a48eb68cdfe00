#include "lockstep/comm/meet/network.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "comm/meet/job_of.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

NetworkFacts node(const std::vector<std::string>& host_addresses, const std::string& wanted = "") {
  return {"n1",
          host_addresses,
          {{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.5", false}, {"ib0", "10.1.0.5", false}},
          wanted};
}

std::string refusal(const NetworkFacts& facts) {
  try {
    choose_interface(facts, true);
  } catch (const InputError& error) {
    return describe(error);
  }
  return "not refused";
}

TEST(Interface, OneNodeStaysOnTheLoopback) {
  for (const auto& facts : {node({}), node({"127.0.1.1"}), node({"10.0.0.5"})}) {
    EXPECT_EQ(choose_interface(facts, false).address, "127.0.0.1");
  }
}

TEST(Interface, AHostNameThatIsTheLoopbackNamesTheVariable) {
  const auto text = refusal(node({"127.0.1.1"}));
  EXPECT_NE(text.find("GLOO_SOCKET_IFNAME"), std::string::npos) << text;
  EXPECT_NE(text.find("127.0.1.1"), std::string::npos) << text;
  EXPECT_NE(text.find("eth0 (10.0.0.5)"), std::string::npos) << text;
  EXPECT_EQ(text.find("lo ("), std::string::npos) << "the loopback is no way out: " << text;
  EXPECT_NE(refusal(node({})).find("does not resolve"), std::string::npos);
  EXPECT_NE(refusal(node({"192.168.9.9"})).find("not an address of this machine"), std::string::npos);
  EXPECT_NE(refusal(node({"10.0.0.5"}, "eth9")).find("no such interface"), std::string::npos);
}

TEST(Interface, ManyNodesTakeTheHostNamesAddressOrTheOneAskedFor) {
  EXPECT_EQ(choose_interface(node({"10.0.0.5"}), true).address, "10.0.0.5");
  EXPECT_EQ(choose_interface(node({"10.0.0.5"}), true).name, "");
  const auto chosen = choose_interface(node({"127.0.1.1"}, "ib0"), true);
  EXPECT_EQ(chosen.name, "ib0");
  EXPECT_EQ(chosen.address, "10.1.0.5");
  EXPECT_EQ(choose_interface(node({}, "ib0,eth0"), true).name, "ib0,eth0");
}

TEST(Interface, TheLoopbackCannotBeWishedForAcrossNodes) {
  EXPECT_NE(refusal(node({"10.0.0.5"}, "lo")).find("loopback"), std::string::npos);
  EXPECT_EQ(choose_interface(node({"10.0.0.5"}, "lo"), false).name, "lo");
}

TEST(Listen, BindsTheOneAddressAndNamesATakenPort) {
  const Listener listener = listen_on("127.0.0.1");
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener.socket.number(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(address.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_EQ(ntohs(address.sin_port), listener.port);
  try {
    listen_on("127.0.0.1", listener.port);
    FAIL() << "two listeners on one port";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(listener.port)), std::string::npos);
  }
  EXPECT_THROW(listen_on("192.0.2.1"), Error) << "another machine's address";
}

using test::job_of;

// Lowers this process's limits for one test; the hard one could not be raised again.
class SoftLimit {
 public:
  explicit SoftLimit(rlim_t files) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower{files, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~SoftLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;
  rlim_t hard() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

TEST(OpenFiles, TheLimitGrowsWhereItMustAndNeverShrinks) {
  const SoftLimit limit(100);
  EXPECT_EQ(make_room_for_files(50), 100u);
  EXPECT_EQ(make_room_for_files(200), 200u);
  EXPECT_EQ(make_room_for_files(150), 200u);
}

TEST(OpenFiles, GlooIsRefusedWhereTheHardLimitIsTooLow) {
  const SoftLimit limit(100);
  check_room_for_gloo(job_of(1, 2));
  if (limit.hard() == RLIM_INFINITY) GTEST_SKIP() << "no hard limit here";
  EXPECT_THROW(check_room_for_gloo(job_of(1, static_cast<int>(limit.hard()) + 1)), InputError);
}

}  // namespace
}  // namespace lockstep::comm
