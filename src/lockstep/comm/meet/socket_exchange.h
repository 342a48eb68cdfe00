#pragma once
// An exchange over sockets: every rank holds a line to rank 0. What its two ends share:
// exchange_server.h is rank 0's, exchange_client.h the others'.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::comm {

/// Where rank 0 listens.
struct MeetingPlace {
  std::string host;
  std::uint16_t port = 0;
  std::string word = {};  // known to this start of this job alone; empty where it could not be told in secret
};

struct ExchangeOptions {
  int rank = 0;
  int world = 1;
  std::string host = {};                      // this rank's, for messages
  std::chrono::milliseconds timeout{60'000};  // for all to come, and for each exchange after that
  bool asks_kernel = true;  // whose process calls; without, all have to prove that they belong
};

/// What a rank says first.
struct Hello {
  int rank = 0;
  int world = 0;
  std::string mark;   // of the job: the digest of its word
  std::string nonce;  // fresh: for rank 0's proof
  std::string host, pid;
};
std::string pack(const Hello& hello);
std::optional<Hello> unpack_hello(const std::string& text);
/// "rank 2 (host a, pid 4711)"
std::string name_of(const Hello& hello);

/// How a word is named to those who know it: by its digest.
std::string mark_of(const std::string& word);

/// Where the kernel does not say that both ends are one user's, rank 0 answers a hello with a nonce of its
/// own and its proof, and the caller with his.
struct Challenge {
  std::string nonce, proof;
};
std::string pack(const Challenge& challenge);
std::optional<Challenge> unpack_challenge(const std::string& text);
std::string rank_zeros_proof(const std::string& secret, const Hello& hello, const std::string& nonce);
std::string callers_proof(const std::string& secret, const Hello& hello, const std::string& nonce);

/// What rank 0 answers: at once, so that it is known for who it is; and once all have come.
constexpr const char* kSeated = "seated";
constexpr const char* kWelcome = "welcome";

constexpr size_t kLargestHello = 4096;
constexpr size_t kLargestText = size_t{256} << 20;
constexpr std::chrono::milliseconds kRetry{50};
constexpr std::chrono::milliseconds kTell{1000};  // for those to come that shall hear why the meeting fails
constexpr std::chrono::milliseconds kRankZeroGrace{2000};  // rank 0 waits for the full time before it speaks

/// "rank 2 of 4 on host a", where an error happened.
std::string place_of(const ExchangeOptions& options);
/// "60 s"
std::string seconds(std::chrono::milliseconds time);
/// That `who` hung up.
Error left(int rank, const ExchangeOptions& options);

}  // namespace lockstep::comm
