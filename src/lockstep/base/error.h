#pragma once
// Exceptions with what happened, where, and what to do, plus a code for programs. Only main prints them.

#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {

/// The exit statuses of a training program; docs/reference/cli.md lists those of all commands.
enum ExitStatus { kDone = 0, kFailed = 1, kBadInput = 2, kStoppedEarly = 75 };

/// Error codes for programs; docs/reference/errors.md explains each.
enum class Code {
  failed,         ///< an error without a code of its own
  bad_input,      ///< arguments, a config, data, a file
  no_memory,      ///< out of memory
  not_joined,     ///< ranks were missing before there was a group
  launcher,       ///< the environment's variables about ranks contradict each other
  gpu,            ///< no GPU, too few, or one for two ranks
  versions,       ///< the ranks run different programs
  shared_memory,  ///< /dev/shm
  open_files,     ///< the limit on open files is too low
  network,        ///< the interface or address to listen on
  nccl,           ///< NCCL did not connect
  rank_lost,      ///< a rank exited or died, or its host does not respond
  rank_late,      ///< a rank did not reach a collective in time
  calls_differ,   ///< the ranks are in different collectives
  no_gradient,    ///< parameters without a gradient in the last backward
};

/// The code's name as in JSON: "rank-lost".
const char* name_of(Code code);
/// The code with this name; Code::failed for an unknown name.
Code code_of(const std::string& name);

/// What a rank was doing when another rank failed.
struct RankCall {
  int rank = 0;            ///< the rank in the job
  std::string call = {};   ///< "all-reduce"; empty: unknown
  uint64_t number = 0;     ///< sequence number of the collective, from 1; 0: unknown
  std::string state = {};  ///< for a rank at fault: "has died at collective 3"
};

/// The collective in which this rank failed.
struct FailedCall {
  std::string call = {};  ///< "all-reduce"; empty: outside of any collective
  uint64_t number = 0;    ///< sequence number in the group, from 1; 0: not counted, like a message
  double waited = 0;      ///< seconds, if it timed out
};

/// An error as data.
struct Fault {
  Code code = Code::failed;
  std::vector<int> ranks = {};  ///< the ranks at fault, if known
  std::string what = {}, where = {}, hint = {};
  FailedCall met_in = {};
  std::vector<RankCall> seen = {};  ///< what other ranks were doing; a selection if there are many
};

/// A failure at run time (exit status 1).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::string where = {}, std::string hint = {});
  explicit Error(Fault fault);
  ~Error() override;
  /// file:line:column and key, or a rank and its host; may be empty.
  const std::string& where() const { return fault_->where; }
  /// What to do about it.
  const std::string& hint() const { return fault_->hint; }
  /// The error code.
  Code code() const { return fault_->code; }
  /// The ranks at fault, if known.
  const std::vector<int>& ranks() const { return fault_->ranks; }
  /// The error as data.
  const Fault& fault() const { return *fault_; }
  /// Sets the code and the ranks at fault: `throw Error(what, where, hint).of(Code::rank_lost, {2})`.
  Error& of(Code code, std::vector<int> ranks = {});
  /// The program's exit status if nothing catches it.
  virtual ExitStatus exit_status() const;

 private:
  std::shared_ptr<const Fault> fault_;  // copying an exception must not throw
};

/// Invalid input: arguments, config, data, checkpoint, environment (exit status 2).
class InputError : public Error {
 public:
  explicit InputError(const std::string& what, std::string where = {}, std::string hint = {});
  explicit InputError(Fault fault);
  ~InputError() override;
  /// Like Error::of().
  InputError& of(Code code, std::vector<int> ranks = {});
  ExitStatus exit_status() const override;
};

/// Returns three lines: what happened, where, and what to do. Omits empty parts and libtorch's stack trace.
std::string describe(const std::exception& error);

/// The exit status for this exception; 1 if it is not an Error.
ExitStatus exit_status(const std::exception& error);

/// Converts any exception to data.
Fault fault_of(const std::exception& error);

}  // namespace lockstep
