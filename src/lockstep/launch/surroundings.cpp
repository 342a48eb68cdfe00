// What identify() asks of this machine: its host name, and the host file of the one launcher that leaves one.
#include <unistd.h>

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

constexpr size_t kLargestFile = 16 << 20;

// nullopt where the variable is not set or its file cannot be read: a task started by pbsdsh has none
std::optional<std::string> read_named_file(const Environment& environment, const char* variable) {
  if (!is_set(environment, variable)) return std::nullopt;
  try {
    return base::read_small_file(text_of(environment, variable), kLargestFile, variable);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

Surroundings current_surroundings(const Environment& environment) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  // the files matter to one launcher each; ten thousand ranks need not all open them
  const std::string launcher = detect_launcher(environment);
  Surroundings result{host.data(), std::nullopt, std::nullopt};
  if (launcher == "none") result.node_file = read_named_file(environment, "PBS_NODEFILE");
  if (launcher == "jsrun") result.rank_file = read_named_file(environment, "LSB_DJOB_RANKFILE");
  return result;
}

}  // namespace lockstep::launch
