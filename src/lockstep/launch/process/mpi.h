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

/// Every rank's text, in rank order. Collective over `comm`.
std::vector<std::string> all_gather_over(mpi::Comm comm, const std::string& text);

constexpr const char* kJoin = "join the group";  // for MpiSession::call_roll()

/// Loaded, initialized and not yet finalized.
bool mpi_is_up();

/// A communicator for the end of a failed job only, so that its collectives match even if one rank fails
/// before the others. null before and after MpiSession.
mpi::Comm failure_comm();

/// MPI_Init to MPI_Finalize. If the program has initialized MPI itself, the program also finalizes it.
/// lockstep does not change MPI_COMM_WORLD's error handler and sends no messages over it.
class MpiSession : public TextExchange {
 public:
  /// Exits (status 1) if not every rank arrives in time; zero waits forever.
  explicit MpiSession(std::chrono::milliseconds join_timeout);
  ~MpiSession() override;

  /// All ranks; a duplicate of MPI_COMM_WORLD. Another module duplicates it again.
  mpi::Comm world() const { return world_; }
  const MpiFacts& facts() const { return facts_; }

  /// From now on the exchanges below wait at least this long.
  void set_timeout(std::chrono::milliseconds timeout);
  /// Waits for all ranks with a timeout, which MPI itself lacks; zero waits for none. Otherwise throws on
  /// every rank that came: "rank 1 did not {what} within 60 s".
  void call_roll(std::chrono::milliseconds timeout, const char* what) const;
  /// These throw if a rank does not arrive within the timeout.
  std::vector<std::string> gather(const std::string& text) override;
  std::string broadcast(const std::string& text) override;
  std::vector<std::string> all_gather(const std::string& text) override;
  void barrier() const;
  /// Waits for all ranks, frees the communicators and finalizes MPI. Throws if not every rank arrives in
  /// time. Without this call MPI stays initialized.
  void finish(std::chrono::milliseconds timeout);

 private:
  void join(std::chrono::milliseconds timeout);
  void read_layout();

  std::chrono::milliseconds patience_;
  bool owner_ = false;
  mpi::Comm world_ = mpi::Comm::null;
  mpi::Comm previous_failure_comm_ = mpi::Comm::null;  // of a session that this one was made within
  MpiFacts facts_;
};

/// Variables that name the plug-ins that Open MPI 4 needs for the ranks of one node; otherwise each rank
/// opens all that are installed. Empty for several nodes, another library (`library` is like "Open MPI
/// v4.1.4"), or if the user has chosen plug-ins.
std::vector<std::pair<std::string, std::string>> plugins_of_one_node(const Environment& environment,
                                                                     const std::string& library);

/// Sets them in the environment during MPI_Init only.
class ScopedPluginVariables {
 public:
  explicit ScopedPluginVariables(std::vector<std::pair<std::string, std::string>> plugins);
  ~ScopedPluginVariables();
  ScopedPluginVariables(ScopedPluginVariables&&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> plugins_;
};

/// 0 if there is none.
pid_t parent_of(pid_t process);
/// Whether the program, by its path or name, starts MPI's ranks: mpirun, mpiexec, orted, hydra_pmi_proxy, ...
bool is_mpi_starter(const std::string& program);
/// The programs above this process, nearest first: "/opt/mpich/bin/hydra_pmi_proxy".
std::vector<std::string> programs_above();

/// Which MPI library to load, and where to look for it; `choice` as for identify().
mpi::LibraryRequest library_request(const Environment& environment, const std::string& choice,
                                    const std::vector<std::string>& above);

}  // namespace lockstep::launch
