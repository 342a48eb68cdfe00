#include "lockstep/comm/meet/star.h"

#include "lockstep/base/format.h"
#include "lockstep/base/pack.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {

std::string seconds(std::chrono::milliseconds time) {
  return format("{} s", time.count() / 1000.0);
}

std::string place_of(const StarOptions& options) {
  return format("rank {} of {} on host {}", options.rank, options.world, options.host);
}

Error left(const std::string& who, const StarOptions& options) {
  return Error(who + " left while the ranks were joining", place_of(options),
               "that rank's own error, earlier in the log, says why");
}

std::string pack(const Hello& hello) {
  return base::pack_texts(
      {std::to_string(hello.rank), std::to_string(hello.world), hello.word, hello.host, hello.pid});
}

std::optional<Hello> unpack_hello(const std::string& text) {
  try {
    const auto parts = base::unpack_texts(text);
    if (parts.size() != 5) return std::nullopt;
    return Hello{std::stoi(parts[0]), std::stoi(parts[1]), parts[2], parts[3], parts[4]};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string name_of(const Hello& hello) {
  return format("rank {} (host {}, pid {})", hello.rank, base::printable(hello.host),
                base::printable(hello.pid));
}

}  // namespace lockstep::comm
