#pragma once
// What a learner's programs take of the machine all together: memory, and what they put into /dev/shm, which
// would stay there.

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"

namespace lockstep::workshop {

class Footprint {
 public:
  /// Of what comes to be below this process, but for these children of it.
  explicit Footprint(std::set<pid_t> others);
  /// Removes what was seen to be theirs: files in /dev/shm, and System V's segments.
  ~Footprint();
  Footprint(const Footprint&) = delete;
  Footprint& operator=(const Footprint&) = delete;

  /// What says at once that somebody put something into /dev/shm: one may do so and end a moment later.
  void add_to(std::vector<pollfd>& waited) const;
  /// Looks, though not more often than is of use; bytes, as seen last.
  size_t look();

 private:
  bool hears_of_a_file() const;
  void note_files(const std::set<pid_t>& processes);
  size_t bytes_of_files() const;

  std::set<pid_t> others_;
  base::Descriptor news_;
  std::map<std::string, ino_t> before_;  // of ours in /dev/shm
  std::map<std::string, ino_t> noted_;   // opened or mapped by one of these processes
  std::chrono::steady_clock::time_point looked_{};
  std::set<pid_t> seen_;
  size_t bytes_ = 0;
};

}  // namespace lockstep::workshop
