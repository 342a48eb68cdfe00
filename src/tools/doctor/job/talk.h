#pragma once
// Rounds of small texts among ranks of which some may be stopped, gone or late: each ends in time and tells
// who was not heard.

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/process/runtime.h"

namespace lockstep::doctor {

using Texts = std::vector<std::optional<std::string>>;  // by rank; nothing of a rank that was not heard

/// What a round brought.
struct Heard {
  Texts texts;                   // everybody's on rank 0; only one's own elsewhere
  std::string reply = {};        // what rank 0 made of them for this rank
  std::vector<int> silent = {};  // who was not heard, as far as this rank knows
  std::string why = {};          // why some were not; empty where all were
};

/// Rank 0's: one text for all ranks, or one for each.
using Reply = std::function<std::vector<std::string>(const Texts& texts)>;

/// The ranks of a job in rounds. Every rank takes part in the same rounds in the same order; one that does
/// not come is not waited for in the rounds that follow.
class Talk {
 public:
  /// No round waits longer than `longest`, whatever it is told.
  Talk(const launch::Runtime& runtime, std::chrono::milliseconds longest)
      : runtime_(runtime), longest_(longest) {}

  /// The rounds that follow belong to this check: a rank that left the last one early is with the others
  /// again.
  void begin(int check) { turn_ = check * kRoundsOfCheck; }
  /// Every rank's text to rank 0, and its reply to them. Takes little more than `patience`, and throws
  /// nothing.
  Heard round(const std::string& text, std::chrono::milliseconds patience, const Reply& reply = {});
  int rank() const { return runtime_.job().rank; }
  int world() const { return runtime_.job().world; }
  /// Whether some rank was not heard in a round so far.
  bool is_broken() const { return broken_; }
  /// Whether rank 0, which tells what was found, was not heard here.
  bool is_alone() const { return alone_; }

 private:
  static constexpr int kRoundsOfCheck = 1000;
  Heard over_mpi(const std::string& text, std::chrono::milliseconds patience, const Reply& reply);
  Heard without_mpi(const std::string& text, const Reply& reply);
  Texts collect(const std::string& text, std::chrono::milliseconds patience);
  Heard answer(const std::string& text, std::chrono::milliseconds patience);
  void tell(const Heard& heard, const std::vector<std::string>& replies, std::chrono::milliseconds patience);
  Texts only(const std::string& text) const;
  void note(const Heard& heard);

  const launch::Runtime& runtime_;
  const std::chrono::milliseconds longest_;
  int turn_ = 0;
  bool broken_ = false;
  bool alone_ = false;
  std::vector<bool> lost_;                           // on rank 0: who was silent in the last round
  std::map<int, std::map<int, std::string>> early_;  // on rank 0: texts of rounds to come, by turn and rank
};

}  // namespace lockstep::doctor
