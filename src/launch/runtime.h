#pragma once
// Joining the job: MPI where the environment says so, the Job, and the small exchanges that come before libtorch.

#include <memory>
#include <string>
#include <vector>

#include "launch/job.h"

namespace lockstep {

/// The job this process has joined. Owns MPI: initialises it at most once, finalises it when destroyed.
class Runtime {
 public:
  explicit Runtime(const std::string& launcher = "auto");
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Job& job() const { return job_; }
  /// True where MPI is initialised and may be used.
  bool has_mpi() const { return has_mpi_; }

  /// Rank 0's text on every rank. Without MPI each rank keeps its own.
  std::string broadcast(const std::string& text) const;
  /// Every rank's text, in rank order, on every rank. Without MPI only one's own.
  std::vector<std::string> all_gather(const std::string& text) const;
  void barrier() const;
  /// Ends the whole job at once (MPI_Abort); without MPI ends this process.
  [[noreturn]] void abort(int status) const;

 private:
  bool has_mpi_ = false;
  Job job_;
};

}  // namespace lockstep
