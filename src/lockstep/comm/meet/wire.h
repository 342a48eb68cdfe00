#pragma once
// One socket between two ranks that are joining: whole messages, never waiting past a deadline.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::comm {

using Deadline = std::chrono::steady_clock::time_point;

/// What every version of lockstep says first.
constexpr const char* kAnyVersion = "lockstep";

struct WireMessage {
  enum Kind : char { text = 'T', error = 'E' } kind = text;
  std::string body = {};
};

class Wire {
 public:
  explicit Wire(base::Descriptor socket = base::Descriptor());

  int number() const { return socket_.number(); }
  /// False where the other end has closed or does not read before the deadline.
  bool send(const WireMessage& message, Deadline deadline);
  /// Reads what has come without waiting, at most `limit` bytes of one message; false once the other end has
  /// closed it.
  bool read_some(size_t limit);
  /// A whole message, if one has come. Throws Foreign where the other end does not speak as we do.
  std::optional<WireMessage> take(size_t limit);
  /// Waits for a whole message; nothing at the deadline. Throws Closed.
  std::optional<WireMessage> receive(size_t limit, Deadline deadline);

  struct Foreign {
    std::string said;  // the first bytes that came
  };
  struct Closed {};

 private:
  base::Descriptor socket_;
  std::string inbox_;
};

/// Waits until the socket may be read (or written); false at the deadline.
bool wait_ready(int socket, short events, Deadline deadline);
/// Milliseconds until then, for poll(): at least 0.
int milliseconds_until(Deadline deadline);

/// Why nobody could be called.
struct Unanswered {
  std::string why;
};
/// One try to connect to any address of that name. Throws Unanswered.
Wire call(const std::string& host, std::uint16_t port, Deadline deadline);

}  // namespace lockstep::comm
