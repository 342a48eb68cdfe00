#include "lockstep/base/files/checkpoint_files.h"

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::base {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStem = "step-", kExtension = ".pt";

}  // namespace

std::string checkpoint_name(int64_t step) {
  return format("{}{:08d}{}", kStem, step, kExtension);
}

std::optional<int64_t> step_in_name(const std::string& name) {
  if (!name.starts_with(kStem) || !name.ends_with(kExtension)) return std::nullopt;
  const auto digits =
      std::string_view(name).substr(kStem.size(), name.size() - kStem.size() - kExtension.size());
  const auto step = parse_number<int64_t>(digits);
  return step && *step >= 0 ? step : std::nullopt;
}

std::vector<fs::path> checkpoints_in(const std::string& folder, std::error_code& failure) {
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (step_in_name(entry->path().filename().string())) files.push_back(entry->path());
  }
  // a missing folder counts as empty
  if (failure == std::errc::no_such_file_or_directory || failure == std::errc::not_a_directory)
    failure.clear();
  return files;
}

std::vector<fs::path> checkpoints_in(const std::string& folder) {
  std::error_code failure;
  auto files = checkpoints_in(folder, failure);
  if (!failure) return files;
  throw InputError("cannot list the checkpoints: " + failure.message(), folder,
                   "check the file system, or start a new run (without --resume)");
}

std::string newest_by_name(const std::string& folder) {
  const auto all = checkpoints_in(folder);
  const auto newest = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return step_in_name(a.filename()) < step_in_name(b.filename());
  });
  return newest == all.end() ? "" : newest->string();
}

}  // namespace lockstep::base
