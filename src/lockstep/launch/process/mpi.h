#pragma once
// MPI once it is up: communicators of our own, errors as exceptions.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/runtime.h"
#include "lockstep/mpi/calls.h"
#include "lockstep/mpi/library.h"

namespace lockstep::launch {

/// Throws Error with MPI's own text and the name of the call.
void check_mpi(int code, const char* call);
/// "MPI_Bcast failed: MPI_ERR_ROOT: invalid root"
std::string mpi_failure(int code, const char* call);

/// Loaded, initialised and not yet finalised.
bool mpi_is_up();

/// For the last words of a process: a communicator that carries nothing else, so that its collectives match
/// even where one rank fails before the rest. null before and after MpiSession.
mpi::Comm last_words_comm();

/// MPI_Init to MPI_Finalize. Joins an MPI that the program has initialised itself and then leaves its end to
/// it. MPI_COMM_WORLD stays the program's own: its error handler, its messages.
class MpiSession : public TextExchange {
 public:
  /// Leaves the process (status 1) where not every rank arrives in time; zero waits for ever.
  explicit MpiSession(std::chrono::milliseconds join_timeout);
  ~MpiSession() override;

  /// All ranks; a duplicate, so that nobody else's messages meet ours. Duplicate it again for another room.
  mpi::Comm world() const { return world_; }
  /// The ranks that share this node's memory, in the order of their world ranks.
  mpi::Comm node() const { return node_; }
  const MpiFacts& facts() const { return facts_; }

  /// From now on the exchanges below wait for at least so long.
  void set_timeout(std::chrono::milliseconds timeout);
  /// These wait for a rank that does not come no longer than for one to join, and throw then.
  std::vector<std::string> gather(const std::string& text) override;
  std::string broadcast(const std::string& text) override;
  std::vector<std::string> all_gather(const std::string& text) override;
  /// As all_gather, among the ranks of this node.
  std::vector<std::string> all_gather_on_node(const std::string& text) const;
  void barrier() const;
  /// Waits for all, frees the communicators and finalises MPI. Without it the destructor leaves MPI up.
  /// Throws where not every rank comes in time.
  void finish(std::chrono::milliseconds timeout);

 private:
  void join(std::chrono::milliseconds timeout);
  void learn_facts();

  std::chrono::milliseconds patience_;
  bool owner_ = false;
  mpi::Comm world_ = mpi::Comm::null;
  mpi::Comm node_ = mpi::Comm::null;
  mpi::Comm last_words_before_ = mpi::Comm::null;  // of a session that this one was made within
  MpiFacts facts_;
};

// Which plug-ins Open MPI needs for the ranks of one node, by name: unnamed, each rank opens all that there
// are.

/// Variables for the environment, before MPI_Init; none where ranks are on several nodes, another library is
/// in use, or somebody has chosen plug-ins already. `library` as MPI tells its version: "Open MPI v4.1.4".
std::vector<std::pair<std::string, std::string>> plugins_of_one_node(const Environment& environment,
                                                                     const std::string& library);

/// They stand in the environment while MPI comes up, and not in that of what this process starts later.
class NamedPlugins {
 public:
  explicit NamedPlugins(std::vector<std::pair<std::string, std::string>> plugins);
  ~NamedPlugins();
  NamedPlugins(const NamedPlugins&) = delete;
  NamedPlugins& operator=(const NamedPlugins&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> plugins_;
};

// Which MPI started this process, and so which library answers it.

/// 0 if there is none.
pid_t parent_of(pid_t process);
/// Whether the program, by its path or name, starts MPI's ranks: mpirun, mpiexec, orted, hydra_pmi_proxy, ...
bool is_mpi_starter(const std::string& program);
/// The programs above this process, nearest first: "/opt/mpich/bin/hydra_pmi_proxy".
std::vector<std::string> programs_above();

/// A pure function of the environment and those programs; `choice` as for identify().
mpi::Wish wish_for_mpi(const Environment& environment, const std::string& choice,
                       const std::vector<std::string>& above);

}  // namespace lockstep::launch
