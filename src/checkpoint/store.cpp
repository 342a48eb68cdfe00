#include "checkpoint/store.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "checkpoint/pt.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStem = "step-", kExtension = ".pt";

/// 470 of "step-00000470.pt".
std::optional<int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(kStem) || !name.ends_with(kExtension)) return std::nullopt;
  const auto digits =
      std::string_view(name).substr(kStem.size(), name.size() - kStem.size() - kExtension.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  return step;
}

int64_t step_of_tree(const Tree& tree) {
  return as_int(get(tree, "iter_no"), "iter_no");
}

std::vector<fs::path> checkpoints_in(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (step_of_name(entry.path().filename().string())) files.push_back(entry.path());
  }
  return files;
}

void warn_passed_over(const fs::path& path, const std::exception& error) {
  log::warning(format("{} is passed over: {}", path.string(), error.what()));
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, int64_t keep)
    : folder_(std::move(folder)), keep_(keep) {}

std::string CheckpointStore::path_of(int64_t step) const {
  return (fs::path(folder_) / format("{}{:08d}{}", kStem, step, kExtension)).string();
}

std::string CheckpointStore::save(const Tree& tree) const {
  const auto step = step_of_tree(tree);
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure)
    throw Error("cannot make the folder for checkpoints: " + failure.message(), folder_,
                "make room, or set run.dir to a folder that can be written");
  const auto path = path_of(step);
  write_pt(path, tree);
  prune(step);
  return path;
}

/// Deletes by age in steps. A file that claims a later step than the one just written stays: it is no older.
void CheckpointStore::prune(int64_t just_written) const {
  if (keep_ <= 0) return;
  std::vector<std::pair<int64_t, fs::path>> older;
  for (const auto& path : checkpoints_in(folder_)) {
    const auto step = *step_of_name(path.filename().string());
    if (step < just_written) older.emplace_back(step, path);
  }
  std::sort(older.begin(), older.end(), std::greater<>());
  for (auto i = static_cast<size_t>(keep_ - 1); i < older.size(); ++i) {
    std::error_code ignored;
    fs::remove(older[i].second, ignored);
  }
}

std::optional<FoundCheckpoint> CheckpointStore::latest() const {
  std::vector<FoundCheckpoint> candidates;
  for (const auto& path : checkpoints_in(folder_)) {
    try {
      candidates.push_back({path.string(), step_of_tree(read_pt(path.string(), {.tensors = false})), {}});
    } catch (const InputError& error) {
      warn_passed_over(path, error);
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  for (auto& candidate : candidates) {
    try {
      candidate.tree = read_pt(candidate.path);
    } catch (const InputError& error) {
      warn_passed_over(candidate.path, error);
      continue;
    }
    candidate.step = step_of_tree(candidate.tree);
    return std::move(candidate);
  }
  return std::nullopt;
}

void CheckpointStore::remove_leftovers() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    if (is_leftover(entry.path().filename().string())) fs::remove(entry.path(), ignored);
  }
}

}  // namespace lockstep
