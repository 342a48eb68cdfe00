#pragma once
// Joins the job: MPI if the launcher uses it, the Job, and small exchanges before libtorch is loaded.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/launch/identify.h"
#include "lockstep/launch/layout.h"

namespace lockstep::launch {

/// Small texts between the ranks of a job before a process group exists: over MPI or a store. Every call is
/// collective and ends in bounded time; if a rank is missing or has left, all ranks throw.
class TextExchange {
 public:
  TextExchange() = default;
  virtual ~TextExchange() = default;
  TextExchange(TextExchange&&) = delete;

  /// In rank order on rank 0; empty on other ranks.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  /// Rank 0's text on every rank.
  virtual std::string broadcast(const std::string& text) = 0;
  /// In rank order, on every rank.
  virtual std::vector<std::string> all_gather(const std::string& text);
  /// On rank 0: its address as the other ranks reach it, or empty if unknown.
  virtual std::string address() const { return ""; }
};

class MpiSession;

struct RuntimeOptions {
  Phantoms phantoms = Phantoms::refuse;
  /// For every rank to arrive in MPI_Init; LOCKSTEP_JOIN_TIMEOUT (seconds) overrides it. Zero = forever.
  std::chrono::milliseconds join_timeout{60'000};
  /// For every rank to come to the end of MPI; LOCKSTEP_LEAVE_TIMEOUT (seconds) overrides it.
  std::chrono::milliseconds leave_timeout{600'000};
  /// No other code in this process calls MPI, so on one node it opens fewer plug-ins.
  bool only_mpi_user = false;
};

/// The job this process has joined. Owns MPI: initializes it at most once, finalizes it when destroyed.
class Runtime {
 public:
  explicit Runtime(const std::string& launcher = "auto", const RuntimeOptions& options = {});
  /// The place is known, and MPI is not used.
  explicit Runtime(Job job);
  /// Waits for the others and finalizes MPI. During an exception it does neither, so that no rank hangs.
  ~Runtime();
  Runtime(Runtime&&) = delete;

  const Job& job() const { return job_; }
  /// From LOCKSTEP_JOIN_TIMEOUT or the options.
  std::chrono::milliseconds join_timeout() const;
  /// Whether MPI is initialized.
  bool has_mpi() const { return mpi_ != nullptr; }
  /// MPI's communicators; an Error without MPI.
  const MpiSession& mpi() const;

  /// Whether the ranks can exchange texts: with MPI, alone, and once they have met.
  bool has_met() const { return mpi_ || exchange_ || job_.world == 1; }
  /// Without MPI: sets the exchange for the calls below.
  void set_exchange(std::unique_ptr<TextExchange> exchange) { exchange_ = std::move(exchange); }
  /// Null before the ranks have met, and for a single process without MPI.
  TextExchange* exchange() const;
  /// Sets the place that the ranks found when they met.
  void set_place(const Place& place) { lockstep::launch::set_place(job_, place); }
  /// Over MPI the exchanges below wait for a rank at least this long.
  void set_timeout(std::chrono::milliseconds timeout);
  /// Collective where there is MPI: as if this launcher had been chosen from the start.
  void set_launcher(const std::string& launcher);

  /// Rank 0's text on every rank. Before the ranks have met: its own text.
  std::string broadcast(const std::string& text) const;
  /// Every rank's text, in rank order, on every rank. Before the ranks have met: its own text.
  std::vector<std::string> all_gather(const std::string& text) const;
  /// Every rank's text, in rank order, on rank 0; empty elsewhere. Before the ranks have met: its own text.
  std::vector<std::string> gather(const std::string& text) const;
  /// Rank 0's result, or its error, on every rank.
  std::string from_first(const std::function<std::string()>& work) const;
  void barrier() const;
  /// Ends the whole job at once (MPI_Abort); without MPI ends this process.
  [[noreturn]] void abort(int status) const;

 private:
  void identify_as(const std::string& launcher);
  void join_mpi(const Environment& environment, const std::string& launcher);
  void log_mpi();
  void leave_mpi();

  RuntimeOptions options_;
  std::unique_ptr<MpiSession> mpi_;
  std::string without_mpi_;                 // why MPI is not used although the launcher can
  std::unique_ptr<TextExchange> exchange_;  // without MPI
  Job job_;
  int exceptions_at_start_ = 0;
};

/// Rank 0 logs the warnings of all ranks (the job's and `more`), each once. Collective.
void log_warnings(const Runtime& runtime, const std::vector<std::string>& more);

}  // namespace lockstep::launch
