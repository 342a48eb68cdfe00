#include "lockstep/comm/meet/listen.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

TEST(Listen, BindsTheOneAddress) {
  const Listener listener = listen_on("127.0.0.1");
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener.socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(address.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  EXPECT_EQ(ntohs(address.sin_port), listener.port);
  EXPECT_NE(listener.port, 0);
  ::close(listener.socket);
}

TEST(Listen, ATakenPortIsAnErrorThatNamesIt) {
  const Listener first = listen_on("127.0.0.1");
  try {
    listen_on("127.0.0.1", first.port);
    FAIL() << "two listeners on one port";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(first.port)), std::string::npos);
  }
  ::close(first.socket);
}

TEST(Listen, AnAddressOfNobodyIsAnError) {
  EXPECT_THROW(listen_on("192.0.2.1"), Error);
}

}  // namespace
}  // namespace lockstep::comm
