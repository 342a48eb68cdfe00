#pragma once
// Rounds of small texts among ranks of which some may be stopped, gone or late: each ends in time and tells
// who was not heard.

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/runtime.h"

namespace lockstep::doctor {

/// What a round brought, the same on every rank that was heard.
struct Heard {
  std::vector<std::optional<std::string>> texts;  // by rank; nothing of a rank that was not heard
  std::string why = {};                           // why some were not; empty where all were
  std::vector<int> silent() const;
};

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
  /// Every rank's text. Takes little more than `patience`, and throws nothing.
  Heard round(const std::string& text, std::chrono::milliseconds patience);
  int rank() const { return runtime_.job().rank; }
  int world() const { return runtime_.job().world; }
  /// Whether some rank was not heard in a round so far.
  bool is_broken() const { return broken_; }
  /// Whether rank 0, which tells what was found, was not heard here.
  bool is_alone() const { return alone_; }

 private:
  static constexpr int kRoundsOfCheck = 1000;
  using Texts = std::vector<std::optional<std::string>>;
  Texts over_mpi(const std::string& text, std::chrono::milliseconds patience);
  Texts collect(const std::string& text, std::chrono::milliseconds patience);
  Texts answer(std::chrono::milliseconds patience);
  void tell(const Texts& texts, std::chrono::milliseconds patience);
  Texts only(const std::string& text) const;
  void note(const std::vector<int>& silent);
  Heard without_mpi(const std::string& text);

  const launch::Runtime& runtime_;
  const std::chrono::milliseconds longest_;
  int turn_ = 0;
  bool broken_ = false;
  bool alone_ = false;
  std::vector<bool> lost_;                           // on rank 0: who was silent in the last round
  std::map<int, std::map<int, std::string>> early_;  // on rank 0: texts of rounds to come, by turn and rank
};

}  // namespace lockstep::doctor
