#pragma once
// The connections to other hosts, and whether those hosts still answer. The kernels ask each other, so
// neither a slow step nor a stopped process is taken for a cut.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::comm {

/// Where this process's TCP connections lead, by descriptor; those to its own address are left out.
using Connections = std::map<int, std::string>;
Connections connections();

/// The connections opened since `before`.
class Lines {
 public:
  /// From now on their hosts are asked, where nothing else is sent, six times in `silence`.
  Lines(const Connections& before, std::chrono::milliseconds silence);

  /// The addresses that have not answered for that long.
  std::vector<std::string> silent() const;
  /// Ends the connections to those, so that whoever waits for one meets an error.
  void cut(const std::vector<std::string>& addresses) const;

  bool empty() const { return open_.empty(); }
  std::chrono::milliseconds silence() const { return silence_; }

 private:
  Connections still_open() const;

  Connections open_;
  std::chrono::milliseconds silence_;
};

/// A thread that looks at lines until one is silent, and reports it once.
class LineWatch {
 public:
  using Report = std::function<void(const Lines& lines, const std::vector<std::string>& silent)>;
  LineWatch(Lines lines, Report report);
  ~LineWatch();
  LineWatch(const LineWatch&) = delete;
  LineWatch& operator=(const LineWatch&) = delete;

 private:
  void look();

  Lines lines_;
  Report report_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm
