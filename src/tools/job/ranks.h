#pragma once
// One start of a job's ranks: the launcher as a child, its output, the signals on their way to it, and its
// end.

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "tools/job/scheduler.h"

namespace lockstep::job {

/// A line of the job's log.
void say(const std::string& text);

/// Holds back SIGUSR1, SIGUSR2, SIGTERM and SIGCHLD from its making on, and hands them out one by one.
class Signals {
 public:
  Signals();
  /// The signals that have come since the last call.
  std::vector<int> take();
  int descriptor() const { return file_.number(); }
  /// Before this process becomes another program.
  static void release();

 private:
  base::Descriptor file_;
};

/// A launcher's standard error without what only repeats a rank's error: Open MPI's banners.
class BannerFilter {
 public:
  /// What to print now that these bytes have come.
  std::string add(const std::string& bytes);
  /// What it still held back.
  std::string finish();
  /// The line with which Slurm reported a process that ran out of memory; empty where it did not.
  const std::string& memory_kill() const { return memory_kill_; }

 private:
  std::string line(const std::string& line);
  std::string give_up_block();

  std::string rest_;
  std::vector<std::string> block_;
  std::string memory_kill_;
};

struct RanksPlan {
  Launcher launcher;
  std::vector<std::string> words;  ///< the program and its arguments
  Environment environment;
  std::string run_file = {};     ///< the ranks write their run's folder into it; empty = they do not train
  std::string errors_file = {};  ///< the ranks append their errors to it
  bool survives_losses = false;  ///< with train.as_world: lost ranks are not waited for
  std::function<std::set<std::string>()> probe_nodes = {};  ///< those that do not answer
};

struct RanksEnd {
  int status = 0;  ///< the launcher's
  bool out_of_memory = false;
  std::set<std::string> silent_nodes = {};  ///< noted when ranks were lost
  bool nodes_were_probed = false;
};

/// Starts them, and waits to the launcher's end. A launcher that stays after its run is over is ended.
RanksEnd run_ranks(Scheduler& scheduler, Signals& signals, StopSignal& stop, RanksPlan plan);

/// The folder that the ranks wrote into the run file; empty where there is none yet.
std::string folder_in(const std::string& run_file);

/// What `lockstep status` would leave with; 1 where the folder cannot be read.
int status_of_run(const std::string& folder);

/// `stop` with one more signal. A SIGTERM stays the one that counts.
void note_signal(int signal, StopSignal& stop);

/// Ends what a launcher that was killed has left on this node.
void end_leftovers();

/// Processes below this one, children's children too: all, or those of that name.
std::vector<pid_t> descendants(const std::string& name = "");

/// How long the job has run: since its session began.
int64_t seconds_of_session();

/// What the job's control group says of processes that its memory limit has killed; empty where it has killed
/// none.
std::string memory_kills(const std::string& job_mark, const std::string& cgroup_folder = "/sys/fs/cgroup",
                         const std::string& own_cgroups = "/proc/self/cgroup");

}  // namespace lockstep::job
