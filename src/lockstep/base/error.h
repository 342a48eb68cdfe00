#pragma once
// One error policy: a typed exception that carries what, where and what to do. Only main turns it into text.

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

/// What the program leaves with.
enum ExitStatus { kDone = 0, kFailed = 1, kBadInput = 2, kStoppedEarly = 75 };

/// Failed while running (exit status 1).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::string where = {}, std::string hint = {})
      : std::runtime_error(what), where_(std::move(where)), hint_(std::move(hint)) {}
  /// Where it is: file:line:column and key, or a rank and its host; empty where there is nothing to point at.
  const std::string& where() const { return where_; }
  /// What to do about it.
  const std::string& hint() const { return hint_; }
  /// What the program leaves with where nothing catches it.
  virtual ExitStatus exit_status() const { return kFailed; }

 private:
  std::string where_;
  std::string hint_;
};

/// The input was wrong: arguments, config, data, checkpoint, environment (exit status 2).
class InputError : public Error {
 public:
  using Error::Error;
  ExitStatus exit_status() const override { return kBadInput; }
};

/// The three lines a person reads: what, where, what to do. Empty parts leave no line, and of libtorch's
/// errors the stack that it puts behind the message is left out.
std::string describe(const std::exception& error);

/// What to leave with after this exception: an Error knows, any other is 1.
ExitStatus exit_status(const std::exception& error);

}  // namespace lockstep
