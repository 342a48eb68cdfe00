#include "lockstep/comm/algorithms/messenger.h"

#include <vector>

namespace lockstep {
namespace {

template <class Message>
std::vector<Message> not_empty(std::span<const Message> messages) {
  std::vector<Message> kept;
  for (const auto& message : messages)
    if (!message.bytes.empty()) kept.push_back(message);
  return kept;
}

}  // namespace

void Messenger::exchange(std::span<const Outgoing> out, std::span<const Incoming> in) {
  const auto sent = not_empty(out);
  const auto received = not_empty(in);
  if (!sent.empty() || !received.empty()) transfer(sent, received);
}

void Messenger::send(int to, std::span<const std::byte> bytes) {
  const Outgoing message{to, bytes};
  exchange({&message, 1}, {});
}

void Messenger::receive(int from, std::span<std::byte> bytes) {
  const Incoming message{from, bytes};
  exchange({}, {&message, 1});
}

}  // namespace lockstep
