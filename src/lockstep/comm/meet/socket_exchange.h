#pragma once
// An exchange over sockets: every rank has a connection to rank 0. What both ends share; exchange_server.h is
// rank 0's end, exchange_client.h the end of the other ranks.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::comm {

/// Where rank 0 listens: at a Unix socket for the ranks on its machine, at a port for ranks on others.
struct MeetingPlace {
  std::string socket = {};
  std::string host = {};  // empty: no port
  std::uint16_t port = 0;
  std::string word = {};  // names this start of the job; empty where a person named the place
};

struct ExchangeOptions {
  int rank = 0;
  int world = 1;
  std::string host = {};                      // this rank's, for messages
  std::string job_id = {};                    // empty where this rank was not told
  std::chrono::milliseconds timeout{60'000};  // for all to come, and for each exchange after that
};

/// What a rank sends first.
struct Hello {
  int rank = 0;
  int world = 0;
  uid_t user = 0;
  std::string job_id, word, host;
  pid_t pid = 0;
};
std::string pack(const Hello& hello);
std::optional<Hello> unpack_hello(const std::string& text);
/// "rank 2 (host a, pid 4711)"
std::string name_of(const Hello& hello);
Hello own_hello(const ExchangeOptions& options, const std::string& word);

/// Rank 0's answers: to each rank at once, and to all ranks once all have come.
constexpr const char* kAccepted = "accepted";
constexpr const char* kComplete = "complete";

constexpr size_t kLargestHello = 4096;
constexpr size_t kLargestText = size_t{256} << 20;
constexpr std::chrono::milliseconds kRetry{50};
constexpr std::chrono::milliseconds kErrorTime{1000};      // to send an error to the other ranks
constexpr std::chrono::milliseconds kRankZeroGrace{2000};  // rank 0 waits for the full time before it answers

/// "rank 2 of 4 on host a", where an error happened.
std::string place_of(const ExchangeOptions& options);
/// "60 s"
std::string seconds(std::chrono::milliseconds time);
/// The error for a rank that closed its connection.
Error left(int rank, const ExchangeOptions& options);

}  // namespace lockstep::comm
