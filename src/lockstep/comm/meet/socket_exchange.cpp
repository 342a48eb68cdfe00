#include "lockstep/comm/meet/socket_exchange.h"

#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/secret.h"

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

std::string pack(const Hello& hello) {
  return base::pack_texts({std::to_string(hello.rank), std::to_string(hello.world), hello.mark, hello.nonce,
                           hello.host, hello.pid});
}

std::optional<Hello> unpack_hello(const std::string& text) {
  try {
    const auto parts = base::unpack_texts(text);
    if (parts.size() != 6) return std::nullopt;
    return Hello{std::stoi(parts[0]), std::stoi(parts[1]), parts[2], parts[3], parts[4], parts[5]};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string mark_of(const std::string& word) {
  return word.empty() ? "" : seal(word, {"mark"});
}

std::string pack(const Challenge& challenge) {
  return base::pack_texts({"prove", challenge.nonce, challenge.proof});
}

std::optional<Challenge> unpack_challenge(const std::string& text) {
  try {
    const auto parts = base::unpack_texts(text);
    if (parts.size() == 3 && parts[0] == "prove") return Challenge{parts[1], parts[2]};
  } catch (const Error&) {
    return std::nullopt;  // another answer
  }
  return std::nullopt;
}

std::string rank_zeros_proof(const std::string& secret, const Hello& hello, const std::string& nonce) {
  return seal(secret, {"rank 0", pack(hello), nonce});
}

std::string callers_proof(const std::string& secret, const Hello& hello, const std::string& nonce) {
  return seal(secret, {"caller", pack(hello), nonce});
}

std::string name_of(const Hello& hello) {
  return format("rank {} (host {}, pid {})", hello.rank, base::printable(hello.host),
                base::printable(hello.pid));
}

}  // namespace lockstep::comm
