#include "lockstep/comm/meet/lookup.h"

#include <sys/socket.h>

#include <future>
#include <thread>

namespace lockstep::comm {
namespace {

Lookup ask(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) return {code};
  return {0, {list, [](const addrinfo* all) { ::freeaddrinfo(const_cast<addrinfo*>(all)); }}};
}

}  // namespace

Lookup look_up(const std::string& host, std::uint16_t port, std::chrono::milliseconds patience) {
  Lookup number = ask(host, port, AI_NUMERICHOST);
  if (number.code == 0) return number;
  // getaddrinfo cannot be interrupted: a thread asks that can be left behind
  auto answer = std::make_shared<std::promise<Lookup>>();
  auto future = answer->get_future();
  std::thread([=] { answer->set_value(ask(host, port, 0)); }).detach();
  return future.wait_for(patience) == std::future_status::ready ? future.get() : Lookup{EAI_AGAIN};
}

}  // namespace lockstep::comm
