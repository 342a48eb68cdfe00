#pragma once
// What another program prints: run from an argument list, never through a shell, never for longer than asked.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::base {

/// Its whole standard output, below 1 MiB, where it left with 0 in time; nullopt otherwise. The program is
/// looked for in PATH.
/// `settings` ("NAME=value") are added to its environment.
std::optional<std::string> capture(const std::vector<std::string>& argv, std::chrono::milliseconds timeout,
                                   const std::vector<std::string>& settings = {});

}  // namespace lockstep::base
