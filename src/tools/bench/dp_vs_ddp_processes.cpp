#include "tools/bench/dp_vs_ddp_processes.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "lockstep/base/capture.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::bench {
namespace {

constexpr std::chrono::minutes kLongest{10};  // one run

std::string free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  const bool found =
      listener >= 0 && ::bind(listener, plain, size) == 0 && ::getsockname(listener, plain, &size) == 0;
  if (listener >= 0) ::close(listener);
  if (!found) throw Error("no free port on the loopback interface", "bench dp-vs-ddp");
  return std::to_string(ntohs(address.sin_port));
}

std::vector<std::string> words_of(const std::string& way, const DpVsDdp& wanted) {
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                    "bench",
                                    "dp-vs-ddp",
                                    "--part",
                                    way,
                                    "--config",
                                    wanted.config,
                                    "--log",
                                    "error",
                                    "--devices",
                                    std::to_string(wanted.devices),
                                    "--steps",
                                    std::to_string(wanted.steps)};
  for (const auto& set : wanted.sets) words.insert(words.end(), {"--set", set});
  return words;
}

// What torchrun would tell each process of one node.
std::vector<std::string> rank_settings(int64_t rank, int64_t world, const std::string& port) {
  return {format("RANK={}", rank),
          format("LOCAL_RANK={}", rank),
          format("WORLD_SIZE={}", world),
          format("LOCAL_WORLD_SIZE={}", world),
          "GROUP_RANK=0",
          "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=" + port,
          "TORCHELASTIC_RUN_ID=bench",
          "TORCHELASTIC_RESTART_COUNT=0"};
}

}  // namespace

DpVsDdpFound run_way(const std::string& way, const DpVsDdp& wanted) {
  const int64_t world = way == "ddp" ? wanted.devices : 1;
  const auto words = words_of(way, wanted);
  const auto port = world > 1 ? free_port() : "";
  std::vector<std::optional<std::string>> answers(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto settings = way == "ddp" ? rank_settings(rank, world, port) : std::vector<std::string>();
      answers[static_cast<size_t>(rank)] = base::capture(words, kLongest, settings);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& answer : answers) {
    if (answer) (void)read_outcome(*answer);  // throws its error
  }
  if (!std::all_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.has_value(); }))
    throw Error("a process of '" + way + "' failed or took too long", "bench dp-vs-ddp",
                "try the same config with `lockstep train`");
  return read_outcome(*answers.front());
}

}  // namespace lockstep::bench
