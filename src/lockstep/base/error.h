#pragma once
// One error policy: an exception type with what, where, what to do, and a code for programs. Only main prints
// it.

#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {

/// The program's exit statuses.
enum ExitStatus { kDone = 0, kFailed = 1, kBadInput = 2, kStoppedEarly = 75 };

/// What went wrong, for programs; docs/reference/errors.md explains each.
enum class Code {
  failed,         ///< anything that has no code of its own
  bad_input,      ///< arguments, a config, data, a file
  no_memory,      ///< out of memory
  not_joined,     ///< ranks were missing before there was a group
  launcher,       ///< the environment's variables about ranks contradict each other
  gpu,            ///< no GPU, too few, or one for two ranks
  versions,       ///< the ranks run different programs
  shared_memory,  ///< /dev/shm
  open_files,     ///< a process may open too few
  network,        ///< the interface or address to listen on
  nccl,           ///< NCCL did not connect
  rank_lost,      ///< a rank exited or died, or its host does not respond
  rank_late,      ///< a rank did not reach a collective in time
  calls_differ,   ///< the ranks are in different collectives
  no_gradient,    ///< parameters had none in the last backward
};

/// "rank-lost", as it is in JSON.
const char* name_of(Code code);
/// Code::failed for any other text.
Code code_of(const std::string& name);

/// Where a rank was when another one failed.
struct RankCall {
  int rank = 0;            ///< of the job
  std::string call = {};   ///< "all-reduce"; empty: unknown
  uint64_t number = 0;     ///< of its collectives, from 1; 0: unknown
  std::string state = {};  ///< of a rank at fault: "has died (its process is gone), at collective 3"
};

/// The collective in which this rank met an error.
struct FailedCall {
  std::string call = {};  ///< "all-reduce"; empty: outside of any collective
  uint64_t number = 0;    ///< of the group's collectives, from 1; 0: not counted, like a message
  double waited = 0;      ///< seconds, if it timed out
};

/// An error as data.
struct Fault {
  Code code = Code::failed;
  std::vector<int> ranks = {};  ///< the ranks at fault, as far as they are known
  std::string what = {}, where = {}, hint = {};
  FailedCall met_in = {};
  std::vector<RankCall> seen = {};  ///< where other ranks were; a few of many
};

/// Failed while running (exit status 1).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::string where = {}, std::string hint = {});
  explicit Error(Fault fault);
  ~Error() override;
  /// file:line:column and key, or a rank and its host; may be empty.
  const std::string& where() const { return fault_->where; }
  /// What to do about it.
  const std::string& hint() const { return fault_->hint; }
  /// What kind of error it is.
  Code code() const { return fault_->code; }
  /// The ranks at fault, as far as they are known.
  const std::vector<int>& ranks() const { return fault_->ranks; }
  /// The error as data.
  const Fault& fault() const { return *fault_; }
  /// Gives it a code, and the ranks at fault: `throw Error(what, where, hint).of(Code::rank_lost, {2})`.
  Error& of(Code code, std::vector<int> ranks = {});
  /// The program's exit status if nothing catches it.
  virtual ExitStatus exit_status() const;

 private:
  std::shared_ptr<const Fault> fault_;  // copying an exception must not throw
};

/// The input was wrong: arguments, config, data, checkpoint, environment (exit status 2).
class InputError : public Error {
 public:
  explicit InputError(const std::string& what, std::string where = {}, std::string hint = {});
  explicit InputError(Fault fault);
  ~InputError() override;
  /// As Error::of().
  InputError& of(Code code, std::vector<int> ranks = {});
  ExitStatus exit_status() const override;
};

/// Three lines: what, where, what to do. Leaves out empty parts, and the stack trace of libtorch's errors.
std::string describe(const std::exception& error);

/// The exit status for this exception; 1 if it is not an Error.
ExitStatus exit_status(const std::exception& error);

/// Any exception as data.
Fault fault_of(const std::exception& error);

}  // namespace lockstep
