#include "lockstep/launch/process/warnings.h"

#include <sstream>

#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/grouped.h"

namespace lockstep::launch {

void say_warnings(const Runtime& runtime, const std::vector<std::string>& more) {
  std::vector<std::string> own = runtime.job().warnings;
  own.insert(own.end(), more.begin(), more.end());
  const auto texts = runtime.gather(base::join(own, "\n"));
  if (runtime.job().rank != 0) return;
  Grouped groups;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream lines(texts[rank]);
    for (std::string line; std::getline(lines, line);) add(groups, line, static_cast<int>(rank));
  }
  for (const auto& [text, ranks] : groups) log::warning(with_ranks(text, ranks, texts.size()));
}

}  // namespace lockstep::launch
