#include "lockstep/comm/meet/socket_exchange.h"

#include <unistd.h>

#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {

std::string seconds(std::chrono::milliseconds time) {
  return format("{} s", time.count() / 1000.0);
}

std::string place_of(const ExchangeOptions& options) {
  return format("rank {} of {} on host {}", options.rank, options.world, options.host);
}

Error left(int rank, const ExchangeOptions& options) {
  return Error(format("rank {} left while the ranks were joining", rank), place_of(options),
               "that rank's own error, earlier in the log, says why")
      .of(Code::not_joined, {rank});
}

Hello own_hello(const ExchangeOptions& options, const std::string& word) {
  return {options.rank, options.world, ::geteuid(), options.job_id, word, options.host, ::getpid()};
}

std::string pack(const Hello& hello) {
  return base::pack_texts({std::to_string(hello.rank), std::to_string(hello.world),
                           std::to_string(hello.user), hello.job_id, hello.word, hello.host,
                           std::to_string(hello.pid)});
}

std::optional<Hello> unpack_hello(const std::string& text) {
  try {
    const auto parts = base::unpack_texts(text);
    if (parts.size() != 7) return std::nullopt;
    return Hello{std::stoi(parts[0]),
                 std::stoi(parts[1]),
                 static_cast<uid_t>(std::stoul(parts[2])),
                 parts[3],
                 parts[4],
                 parts[5],
                 std::stoi(parts[6])};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string name_of(const Hello& hello) {
  return format("rank {} (host {}, pid {})", hello.rank, base::printable(hello.host), hello.pid);
}

}  // namespace lockstep::comm
