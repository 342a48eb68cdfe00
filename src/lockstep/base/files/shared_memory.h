#pragma once
// A piece of memory that the processes of one node share, found by its name.

#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::base {

/// POSIX shared memory, mapped while this object lives. Zero-filled when created.
class SharedMemory {
 public:
  /// A new piece under a name that nobody has; its pages are there, so that a full /dev/shm is an error here.
  /// Sweeps what killed processes left.
  static SharedMemory create(size_t bytes);
  /// The piece of that name, or nothing where this process cannot see it (another node, another container).
  static std::optional<SharedMemory> open(const std::string& name);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// Takes the name away; the memory lives on while somebody maps it.
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
  Descriptor claim_;  // the name's maker holds it
};

// Names in shared memory that no kill leaves for good: their maker holds them locked, and whoever makes the
// next one sweeps away what nobody holds. A lock outlives no process and knows no reused pid.

/// "lockstep-NAME.shared", the only form that is swept.
std::string claimed_name(const std::string& name);

/// Locks the file, which was made under such a name just now, for as long as it stays open. False where a
/// sweep was quicker: make another.
bool claim(const Descriptor& file);

/// Removes this user's file if nobody holds it. Names of that form are removed by who holds them, and by this
/// alone.
void remove_unclaimed(const std::string& path);

/// Removes this user's files of that form in `folder` that nobody holds.
void sweep_unclaimed(const std::string& folder);

}  // namespace lockstep::base
