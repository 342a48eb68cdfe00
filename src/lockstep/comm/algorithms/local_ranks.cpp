#include "lockstep/comm/algorithms/local_ranks.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kPatience{10};

// What lies between the ranks.
class Post {
 public:
  explicit Post(std::vector<int> nodes) : nodes(std::move(nodes)) {}

  void put(int from, const Outgoing& message, bool* taken) {
    const std::lock_guard<std::mutex> guard(mutex_);
    lines_[{from, message.to}].push_back({message.bytes, taken});
    changed_.notify_all();
  }
  void take(int to, const Incoming& message) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto& line = lines_[{message.from, to}];
    wait(lock, [&] { return !line.empty(); });
    if (line.front().bytes.size() != message.bytes.size())
      throw Error(format("rank {} sent {} bytes, and rank {} waits for {}", message.from,
                         line.front().bytes.size(), to, message.bytes.size()));
    std::copy(line.front().bytes.begin(), line.front().bytes.end(), message.bytes.begin());
    *line.front().taken = true;
    line.pop_front();
    changed_.notify_all();
  }
  void wait_taken(const bool& taken) {
    std::unique_lock<std::mutex> lock(mutex_);
    wait(lock, [&] { return taken; });
  }
  void fail(std::exception_ptr error) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!error_) error_ = std::move(error);
    changed_.notify_all();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  const std::vector<int> nodes;

 private:
  struct Letter {
    std::span<const std::byte> bytes;
    bool* taken;
  };

  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, Ready&& ready) {
    const bool came = changed_.wait_for(lock, kPatience, [&] { return error_ || ready(); });
    if (error_) throw Error("another rank has failed");
    if (!came) throw Error("the ranks wait for each other");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Letter>> lines_;
  std::exception_ptr error_;
};

class LocalMessenger : public Messenger {
 public:
  LocalMessenger(Post& post, int rank) : post_(post), rank_(rank) {}
  int rank() const override { return rank_; }
  int world() const override { return static_cast<int>(post_.nodes.size()); }
  int node_of(int rank) const override { return post_.nodes[static_cast<std::size_t>(rank)]; }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::deque<bool> taken(out.size(), false);
    try {
      for (std::size_t i = 0; i < out.size(); ++i) post_.put(rank_, out[i], &taken[i]);
      for (const auto& message : in) post_.take(rank_, message);
      for (const auto& one : taken) post_.wait_taken(one);
    } catch (...) {
      post_.fail(std::current_exception());  // while what the letters point to is still there
      throw;
    }
  }

 private:
  Post& post_;
  int rank_;
};

}  // namespace

void run_as_ranks(const std::vector<int>& nodes, const std::function<void(Messenger&)>& body) {
  Post post(nodes);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    threads.emplace_back([&post, &body, rank] {
      try {
        LocalMessenger messenger(post, rank);
        body(messenger);
      } catch (...) {
        post.fail(std::current_exception());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  post.rethrow();
}

void run_as_ranks(int world, const std::function<void(Messenger&)>& body) {
  run_as_ranks(std::vector<int>(static_cast<std::size_t>(world), 0), body);
}

}  // namespace lockstep
