#pragma once
// Joining the job: MPI where the environment says so, the Job, and the small exchanges that come before
// libtorch.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launch/job.h"

namespace lockstep {

class MpiSession;

/// How a process finds out who it is.
struct RuntimeOptions {
  Phantoms phantoms = Phantoms::refuse;
  /// For every rank to arrive in MPI_Init; LOCKSTEP_JOIN_TIMEOUT (seconds) overrules. Zero = for ever.
  std::chrono::milliseconds join_timeout{60'000};
};

/// The job this process has joined. Owns MPI: initialises it at most once, finalises it when destroyed.
class Runtime {
 public:
  explicit Runtime(const std::string& launcher = "auto", const RuntimeOptions& options = {});
  /// Waits for the others and finalises MPI; while an exception flies it does neither, so that nobody hangs.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Job& job() const { return job_; }
  /// True where MPI is initialised and may be used.
  bool has_mpi() const { return mpi_ != nullptr; }
  /// MPI's communicators (launch/mpi.h); an Error where MPI is not in use.
  const MpiSession& mpi() const;

  /// Rank 0's text on every rank. Without MPI each rank keeps its own.
  std::string broadcast(const std::string& text) const;
  /// Every rank's text, in rank order, on every rank. Without MPI only one's own.
  std::vector<std::string> all_gather(const std::string& text) const;
  /// Every rank's text, in rank order, on rank 0; empty elsewhere. Without MPI only one's own.
  std::vector<std::string> gather(const std::string& text) const;
  void barrier() const;
  /// Ends the whole job at once (MPI_Abort); without MPI ends this process.
  [[noreturn]] void abort(int status) const;

 private:
  std::unique_ptr<MpiSession> mpi_;
  Job job_;
  int exceptions_at_birth_ = 0;
};

}  // namespace lockstep
