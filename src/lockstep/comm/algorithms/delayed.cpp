#include "lockstep/comm/algorithms/delayed.h"

#include <algorithm>
#include <thread>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

template <class Message>
double bytes_of(std::span<const Message> messages) {
  std::size_t bytes = 0;
  for (const auto& message : messages) bytes += message.bytes.size();
  return static_cast<double>(bytes);
}

}  // namespace

// The sender waits before it sends; the receiver only while its own line is still busy with an earlier
// message.
void Delayed::transfer(std::span<const Outgoing> out, std::span<const Incoming> in) {
  if (!out.empty()) std::this_thread::sleep_for(duration(delay_.latency + delay_.seconds(bytes_of(out))));
  messenger_.exchange(out, in);
  if (in.empty()) return;
  line_in_free_ = std::max(Clock::now(), line_in_free_ + duration(delay_.seconds(bytes_of(in))));
  std::this_thread::sleep_until(line_in_free_);
}

}  // namespace lockstep
