#pragma once
// Named memory that processes of one node share.

#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::base {

/// POSIX shared memory, mapped while this object lives. Zero-filled when created.
class SharedMemory {
 public:
  /// New memory under a fresh name. Allocates all pages, so that a full /dev/shm is an error here. Removes
  /// what killed processes left.
  static SharedMemory create(size_t bytes);
  /// The memory of that name; nullopt on another node or in another container.
  static std::optional<SharedMemory> open(const std::string& name);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// Removes the name; the memory exists as long as a process maps it.
  void unlink();

  void* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& name() const { return name_; }

 private:
  SharedMemory(std::string name, void* data, size_t size, Descriptor claim);
  void release();

  std::string name_;
  void* data_ = nullptr;
  size_t size_ = 0;
  Descriptor claim_;  // a lock, in the process that created the name
};

// A process that creates a name holds a lock on its file. The next process that creates one removes unlocked
// files, so a killed process leaves no memory behind.

/// "lockstep-NAME.shared": only names of this form are removed.
std::string claimed_name(const std::string& name);

/// Locks a file that was just created under such a name, as long as it is open. False if another process has
/// removed it meanwhile: create another.
bool claim(const Descriptor& file);

/// Removes this user's unlocked files of that form in `folder`.
void sweep_unclaimed(const std::string& folder);

}  // namespace lockstep::base
