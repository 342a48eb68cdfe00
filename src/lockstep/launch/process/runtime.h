#pragma once
// Joining the job: MPI where the environment says so, the Job, and the small exchanges that come before
// libtorch.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/launch/identify.h"
#include "lockstep/launch/layout.h"
#include "lockstep/launch/process/text_exchange.h"

namespace lockstep::launch {

class MpiSession;

/// How a process finds out who it is.
struct RuntimeOptions {
  Phantoms phantoms = Phantoms::refuse;
  /// For every rank to arrive in MPI_Init; LOCKSTEP_JOIN_TIMEOUT (seconds) overrides it. Zero = for ever.
  std::chrono::milliseconds join_timeout{60'000};
  /// For every rank to come to the end of MPI; LOCKSTEP_LEAVE_TIMEOUT (seconds) overrides it.
  std::chrono::milliseconds leave_timeout{600'000};
  /// Nobody else in this process calls MPI, so on one node it may leave out what only others would use.
  bool alone_in_mpi = false;
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
  /// As the options or LOCKSTEP_JOIN_TIMEOUT say.
  std::chrono::milliseconds join_timeout() const;
  /// True where MPI is initialised and may be used.
  bool has_mpi() const { return mpi_ != nullptr; }
  /// MPI's communicators (launch/mpi.h); an Error where MPI is not in use.
  const MpiSession& mpi() const;

  /// True where the ranks can exchange texts: with MPI, alone, and once they have met.
  bool has_met() const { return mpi_ || exchange_ || job_.world == 1; }
  /// Without MPI: the text exchange that carries what is below from now on.
  void meet_in(std::unique_ptr<TextExchange> exchange) { exchange_ = std::move(exchange); }
  /// What carries it; null before the ranks have met, and where one is alone without MPI.
  TextExchange* exchange() const;
  /// What the launcher did not tell and the ranks found when they met.
  void set_place(const Place& place) { lockstep::launch::set_place(job_, place); }
  /// Over MPI the exchanges below wait for a rank at least so long: a config may say so when MPI is up.
  void set_timeout(std::chrono::milliseconds timeout);
  /// Collective where there is MPI: as if this launcher had been chosen from the start.
  void set_launcher(const std::string& launcher);

  /// Rank 0's text on every rank. Before the ranks have met each keeps its own.
  std::string broadcast(const std::string& text) const;
  /// Every rank's text, in rank order, on every rank. Before the ranks have met only one's own.
  std::vector<std::string> all_gather(const std::string& text) const;
  /// Every rank's text, in rank order, on rank 0; empty elsewhere. Before the ranks have met only one's own.
  std::vector<std::string> gather(const std::string& text) const;
  void barrier() const;
  /// Ends the whole job at once (MPI_Abort); without MPI ends this process.
  [[noreturn]] void abort(int status) const;

 private:
  void identify_as(const std::string& launcher);
  void join_mpi(const Environment& environment, const std::string& launcher);
  void tell_mpi();
  void leave_mpi();

  RuntimeOptions options_;
  std::unique_ptr<MpiSession> mpi_;
  std::string without_mpi_;                 // why, where the launcher has an MPI in mind
  std::unique_ptr<TextExchange> exchange_;  // without MPI
  Job job_;
  int exceptions_at_birth_ = 0;
};

// What smelt at the start, said once for the job: guessed places, unreadable node files, threads beyond a
// share.

/// Rank 0 logs every rank's warnings, the job's and `more`, each once. Collective where there is MPI; without
/// it rank 0 knows its own.
void say_warnings(const Runtime& runtime, const std::vector<std::string>& more);

}  // namespace lockstep::launch
