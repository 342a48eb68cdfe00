#pragma once
// A folder of checkpoints named step-00000470.pt and so on. Each is written atomically, and the newest is
// never deleted. CheckpointWriter writes in the background.

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/checkpoint/tree.h"

namespace lockstep {

/// A checkpoint that was read and verified.
struct FoundCheckpoint {
  std::string path;
  int64_t step = 0;  // the tree's "iter_no"
  Tree tree;
};

/// The files of one folder.
class CheckpointStore {
 public:
  /// Keeps the newest `keep` files, or all if 0. save() creates the folder. `check` runs before a file is
  /// renamed or deleted; it should throw if another process has taken over the folder.
  explicit CheckpointStore(std::string folder, int64_t keep = 3, std::function<void()> check = {});

  /// The path of the folder.
  const std::string& folder() const { return folder_; }
  /// The path for the checkpoint of a step, whether or not it exists.
  std::string path_of(int64_t step) const;
  /// The path of best.pt, which is never deleted and which latest() ignores.
  std::string best_path() const;

  /// The name to save under: step-*.pt, best.pt, or both.
  enum class Name { step, best, both };
  /// Writes `tree` (its "iter_no" is the step), then deletes the oldest beyond `keep`. Returns the path.
  std::string save(const Tree& tree, Name name = Name::step) const;

  /// Returns the newest valid checkpoint, by step, and logs a warning for each damaged one. Returns nullopt
  /// if there is no checkpoint. Throws InputError if all are damaged, or if the folder or a newer file cannot
  /// be read.
  std::optional<FoundCheckpoint> latest() const;

 private:
  void prune(int64_t just_written) const;
  void name_best(const std::string& path) const;

  std::string folder_;
  int64_t keep_;
  std::function<void()> check_;
};

/// The checkpoints of a run folder, or of a folder that contains checkpoints directly.
CheckpointStore checkpoints_of(const std::string& folder);

/// Saves a snapshot while training continues. At most one save is in progress.
class CheckpointWriter {
 public:
  /// For each save, the writer's thread calls `store`, and then `saved` with the path. It does not call
  /// `saved` for a save that only updates best.pt.
  explicit CheckpointWriter(
      std::function<CheckpointStore()> store,
      std::function<void(const std::string&)> saved = [](const std::string&) {});
  ~CheckpointWriter();
  CheckpointWriter(CheckpointWriter&&) = delete;

  /// Waits for the previous save, copies the tensors and returns. Throws the previous save's error, if any,
  /// and then does not start a new save.
  void submit(const Tree& tree, CheckpointStore::Name name = CheckpointStore::Name::step);

  /// Waits for the save in progress and throws its error, if any.
  void wait();

  /// Whether no save is in progress.
  bool idle() const { return !is_saving_; }

 private:
  std::function<CheckpointStore()> store_;
  std::function<void(const std::string&)> saved_;
  std::thread thread_;
  std::exception_ptr failure_;  // set by the thread
  std::atomic<bool> is_saving_ = false;
};

}  // namespace lockstep
