#pragma once
// The processes below this one, and the end of those that a program leaves behind.

#include <sys/types.h>

#include <set>

namespace lockstep::workshop {

/// The children of a process, those of its threads too; none where it is gone.
std::set<pid_t> children_of(pid_t pid);
/// Its children, and theirs, but for some of its own and what is below these.
std::set<pid_t> descendants_of(pid_t pid, const std::set<pid_t>& but);

/// Stopped by a signal: it does not go on until somebody lets it.
bool is_stopped(pid_t pid);

/// While one lives, what programs leave behind becomes ours: daemons too, in sessions of their own. At the
/// end it is ended.
class Reaper {
 public:
  Reaper();
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  /// Children that were there before.
  const std::set<pid_t>& others() const { return others_; }
  /// Ends what is there now, for some seconds at most.
  void sweep() const;

 private:
  bool end_some() const;
  std::set<pid_t> others_;  // started by who became this process
};

}  // namespace lockstep::workshop
