#pragma once
// Small texts between the ranks of a job, before any group is opened: over MPI, sockets or a store.

#include <string>
#include <vector>

namespace lockstep::launch {

/// Every call is collective and ends in bounded time. Where a rank is missing or has left, all ranks throw.
class TextExchange {
 public:
  TextExchange() = default;
  virtual ~TextExchange() = default;
  TextExchange(const TextExchange&) = delete;
  TextExchange& operator=(const TextExchange&) = delete;

  /// In rank order on rank 0; empty elsewhere.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  /// Rank 0's text on every rank.
  virtual std::string broadcast(const std::string& text) = 0;
  /// In rank order, on every rank.
  virtual std::vector<std::string> all_gather(const std::string& text);
  /// On rank 0: its address as the other ranks reach it, or empty where that is not known.
  virtual std::string address() const { return ""; }
};

}  // namespace lockstep::launch
