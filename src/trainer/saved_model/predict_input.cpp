#include "trainer/saved_model/predict_input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/base/fault.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"

namespace lockstep::train {
namespace {

std::string all_of_standard_input() {
  std::string text;
  std::array<char, 1 << 16> part;
  for (;;) {
    const auto got = ::read(STDIN_FILENO, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(format("cannot read: {}", strerror(errno)), "standard input", "");
    if (got == 0) return text;
    text.append(part.data(), static_cast<size_t>(got));
  }
}

}  // namespace

PredictInput::PredictInput(const Team& team, const std::string& asked) : path_(base::find_path(asked)) {
  if (asked != "-") return;
  const auto text = team.from_first(all_of_standard_input);
  team.together([&] {
    folder_.emplace();
    path_ = folder_->path() + "/standard input";
    base::replace_file(path_, text);
  });
}

std::shared_ptr<const Dataset> PredictInput::read(const Setup& setup) const {
  try {
    return setup.task->inputs(setup.settings.for_task(), setup.data, path_);
  } catch (const InputError& error) {
    auto fault = error.fault();
    const bool ours = folder_ && fault.where.starts_with(folder_->path());
    if (ours) fault.where.erase(0, folder_->path().size() + 1);
    throw InputError(std::move(fault));
  }
}

}  // namespace lockstep::train
