#include "lockstep/comm/meet/interface.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/meet/lookup.h"

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

TEST(Interface, ManyNodesTakeTheHostNamesAddress) {
  const auto chosen = choose_interface(node({"10.0.0.5"}), true);
  EXPECT_EQ(chosen.address, "10.0.0.5");
  EXPECT_EQ(chosen.name, "");
}

TEST(Interface, AHostNameThatIsTheLoopbackNamesTheVariable) {
  const auto text = refusal(node({"127.0.1.1"}));
  EXPECT_NE(text.find("GLOO_SOCKET_IFNAME"), std::string::npos) << text;
  EXPECT_NE(text.find("127.0.1.1"), std::string::npos) << text;
  EXPECT_NE(text.find("eth0 (10.0.0.5)"), std::string::npos) << text;
  EXPECT_EQ(text.find("lo ("), std::string::npos) << "the loopback is no way out: " << text;
}

TEST(Interface, AHostNameThatDoesNotResolveNamesTheVariable) {
  EXPECT_NE(refusal(node({})).find("GLOO_SOCKET_IFNAME"), std::string::npos);
}

TEST(Interface, AnAddressOfAnotherMachineIsRefused) {
  EXPECT_NE(refusal(node({"192.168.9.9"})).find("no address of this machine"), std::string::npos);
}

TEST(Interface, AWishIsHonoured) {
  const auto chosen = choose_interface(node({"127.0.1.1"}, "ib0"), true);
  EXPECT_EQ(chosen.name, "ib0");
  EXPECT_EQ(chosen.address, "10.1.0.5");
  EXPECT_EQ(choose_interface(node({}, "ib0,eth0"), true).name, "ib0,eth0");
}

TEST(Interface, AWishForNothingIsRefused) {
  EXPECT_NE(refusal(node({"10.0.0.5"}, "eth9")).find("no such interface"), std::string::npos);
}

TEST(Interface, TheLoopbackCannotBeWishedForAcrossNodes) {
  EXPECT_NE(refusal(node({"10.0.0.5"}, "lo")).find("loopback"), std::string::npos);
  EXPECT_EQ(choose_interface(node({"10.0.0.5"}, "lo"), false).name, "lo");
}

TEST(Interface, ThisMachineHasALoopback) {
  const auto facts = network_facts("");
  EXPECT_FALSE(facts.host.empty());
  bool loopback = false;
  for (const auto& entry : facts.interfaces) loopback |= entry.loopback;
  EXPECT_TRUE(loopback);
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

}  // namespace
}  // namespace lockstep::comm
