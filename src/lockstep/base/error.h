#pragma once
// One error policy: a typed exception that carries what, where and what to do, and a code for programs. Only
// main turns it into text.

#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {

/// What the program leaves with.
enum ExitStatus { kDone = 0, kFailed = 1, kBadInput = 2, kStoppedEarly = 75 };

/// What went wrong, for a program that acts on it; docs/reference/errors.md explains each.
enum class Code {
  failed,         ///< anything that has no code of its own
  bad_input,      ///< arguments, a config, data, a file
  no_memory,      ///< this process gets no more
  not_joined,     ///< ranks did not come, or left, before there was a group
  launcher,       ///< what the environment says of ranks does not fit together
  gpu,            ///< no GPU, too few, or one for two ranks
  versions,       ///< the ranks run different programs
  shared_memory,  ///< /dev/shm
  open_files,     ///< a process may open too few
  network,        ///< the interface or the address to listen at
  nccl,           ///< NCCL did not connect
  rank_lost,      ///< a rank ended or died, or its host fell silent
  rank_late,      ///< a rank did not come to a collective in time
  calls_differ,   ///< the ranks are in different collectives
  no_gradient,    ///< parameters had none in the last backward
};

/// "rank-lost", as it is in JSON.
const char* name_of(Code code);
/// Code::failed for any other text.
Code code_of(const std::string& name);

/// An error as data: lockstep/base/fault.h.
struct Fault;

/// Failed while running (exit status 1).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::string where = {}, std::string hint = {});
  explicit Error(Fault fault);
  ~Error() override;
  /// Where it is: file:line:column and key, or a rank and its host; empty where there is nothing to point at.
  const std::string& where() const;
  /// What to do about it.
  const std::string& hint() const;
  /// Of what kind it is.
  Code code() const;
  /// The ranks at fault, as far as they are known.
  const std::vector<int>& ranks() const;
  /// All of it.
  const Fault& fault() const { return *fault_; }
  /// Gives it a code, and the ranks at fault: `throw Error(what, where, hint).of(Code::rank_lost, {2})`.
  Error& of(Code code, std::vector<int> ranks = {});
  /// What the program leaves with where nothing catches it.
  virtual ExitStatus exit_status() const;

 private:
  std::shared_ptr<const Fault> fault_;  // an exception is copied, and no copy may throw
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

/// The three lines a person reads: what, where, what to do. Empty parts leave no line, and of libtorch's
/// errors the stack that it puts behind the message is left out.
std::string describe(const std::exception& error);

/// What to leave with after this exception: an Error knows, any other is 1.
ExitStatus exit_status(const std::exception& error);

// An error as data, what an Error carries.

/// A rank and the collective that it was in when another one failed.
struct RankCall {
  int rank = 0;            ///< of the job
  std::string call = {};   ///< "all-reduce"; empty: not known
  uint64_t number = 0;     ///< of its collectives, from 1; 0: not known
  std::string state = {};  ///< of a rank at fault: "has died (its process is gone), at collective 3"
};

/// The collective in which this rank met an error.
struct FailedCall {
  std::string call = {};  ///< "all-reduce"; empty: the error was met outside of any
  uint64_t number = 0;    ///< of the group's collectives, from 1; 0: not counted, as a message
  double waited = 0;      ///< seconds, where it timed out
};

/// An error as data.
struct Fault {
  Code code = Code::failed;
  std::vector<int> ranks = {};  ///< at fault, as far as they are known
  std::string what = {}, where = {}, hint = {};
  FailedCall met_in = {};
  std::vector<RankCall> seen = {};  ///< where ranks were then; a few of many
};

/// Any exception as data: of one that is no Error, what describe() says of it.
Fault fault_of(const std::exception& error);

}  // namespace lockstep
