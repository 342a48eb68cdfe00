#pragma once
// A folder of checkpoints, step-00000470.pt and so on: each written whole or not at all, the last good one
// never deleted; and a writer that works in the background.

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

/// A checkpoint that was found whole.
struct FoundCheckpoint {
  std::string path;
  int64_t step = 0;  // the tree's "iter_no"
  Tree tree;
};

/// The files of one folder.
class CheckpointStore {
 public:
  /// `keep` files stay; 0 keeps all. The folder is made at the first save. `check` is called before a file is
  /// put in its place or deleted, and throws where the folder is no longer ours.
  explicit CheckpointStore(std::string folder, int64_t keep = 3, std::function<void()> check = {});

  /// Where they lie.
  const std::string& folder() const { return folder_; }
  /// Where the checkpoint of a step lies, or would.
  std::string path_of(int64_t step) const;
  /// best.pt, which nothing deletes and latest() passes over.
  std::string best_path() const;

  /// Under which name a checkpoint is saved: its step's, as the best so far, or both.
  enum class Name { step, best, both };
  /// Writes tree (its "iter_no" is the step), then deletes the oldest beyond `keep`. Returns the path.
  std::string save(const Tree& tree, Name name = Name::step) const;

  /// The newest checkpoint, by its name, that is whole; damaged ones are skipped with a warning that says
  /// why. Nothing only where there is none: an InputError where none of them is whole, or the system cannot
  /// read the folder or a newer file.
  std::optional<FoundCheckpoint> latest() const;

 private:
  void prune(int64_t just_written) const;
  void name_best(const std::string& path) const;

  std::string folder_;
  int64_t keep_;
  std::function<void()> check_;
};

/// The checkpoints of a run's folder, or of a folder that holds them itself.
CheckpointStore checkpoints_of(const std::string& folder);

/// Saves a snapshot while training continues. At most one save is in flight.
class CheckpointWriter {
 public:
  /// In the writer's thread: each save calls `store`, and then `saved` with the path, unless it is the best
  /// one alone.
  explicit CheckpointWriter(
      std::function<CheckpointStore()> store,
      std::function<void(const std::string&)> saved = [](const std::string&) {});
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the save before, copies the tree's tensors and returns. An error of the save before is thrown
  /// here, and this one is not started.
  void submit(const Tree& tree, CheckpointStore::Name name = CheckpointStore::Name::step);

  /// Waits for the save in flight and throws its error, if it had one.
  void wait();

  /// Whether no save is in flight.
  bool idle() const { return !is_saving_; }

 private:
  std::function<CheckpointStore()> store_;
  std::function<void(const std::string&)> saved_;
  std::thread thread_;
  std::exception_ptr failure_;  // set by the thread
  std::atomic<bool> is_saving_ = false;
};

}  // namespace lockstep
