#include "lockstep/base/capture.h"

#include "lockstep/base/answer.h"

namespace lockstep::base {

std::optional<std::string> capture(const std::vector<std::string>& argv, std::chrono::milliseconds timeout,
                                   const std::vector<std::string>& settings) {
  auto answer = ask({.argv = argv, .settings = settings}, timeout);
  return answer.good() && answer.whole ? std::optional(std::move(answer.output)) : std::nullopt;
}

}  // namespace lockstep::base
