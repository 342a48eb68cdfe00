#pragma once
// What a learner's programs take of the machine all together: memory, and what they put into /dev/shm, which
// would stay there.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <set>
#include <string>

namespace lockstep::workshop {

class Footprint {
 public:
  /// Of what comes to be below this process, but for these children of it.
  explicit Footprint(std::set<pid_t> others);
  /// Removes from /dev/shm what was seen to be theirs.
  ~Footprint();
  Footprint(const Footprint&) = delete;
  Footprint& operator=(const Footprint&) = delete;

  /// Looks, though not more often than is of use; bytes, as seen last.
  size_t look();

 private:
  void note_files(const std::set<pid_t>& processes);
  size_t bytes_of_files() const;

  std::set<pid_t> others_;
  std::map<std::string, ino_t> before_;  // of ours in /dev/shm
  std::map<std::string, ino_t> noted_;   // opened or mapped by one of these processes
  std::chrono::steady_clock::time_point looked_{};
  size_t bytes_ = 0;
};

}  // namespace lockstep::workshop
