#include "lockstep/comm/algorithms/local_ranks.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kStuckAfter{10};

// What a rank is at, with whom.
struct Doing {
  enum What { works, receives, sends, has_ended } what = works;
  int other = 0;
  std::function<bool()> can_go_on = [] { return true; };
};

bool waits(const Doing& doing) {
  return doing.what == Doing::receives || doing.what == Doing::sends;
}

std::string described(int rank, const Doing& doing) {
  switch (doing.what) {
    case Doing::receives:
      return format("rank {} waits for a message from rank {}", rank, doing.other);
    case Doing::sends:
      return format("rank {} waits until rank {} receives its message", rank, doing.other);
    case Doing::has_ended:
      return format("rank {} has ended", rank);
    case Doing::works:
      break;
  }
  return format("rank {} works", rank);
}

// What lies between the ranks.
class Post {
 public:
  explicit Post(std::vector<int> nodes) : nodes(std::move(nodes)), doing_(this->nodes.size()) {}

  void put(int from, const Outgoing& message, bool* taken) {
    const std::lock_guard<std::mutex> guard(mutex_);
    lines_[{from, message.to}].push_back({message.bytes, taken});
    changed_.notify_all();
  }
  void take(int to, const Incoming& message) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto& line = lines_[{message.from, to}];
    wait(lock, to, {Doing::receives, message.from}, [&] { return !line.empty(); });
    if (line.front().bytes.size() != message.bytes.size())
      throw Error(format("rank {} sent {} bytes, and rank {} waits for {}", message.from,
                         line.front().bytes.size(), to, message.bytes.size()),
                  "",
                  "what is sent and the place that it comes into have one size: from whom does it come, and "
                  "what is it?");
    std::copy(line.front().bytes.begin(), line.front().bytes.end(), message.bytes.begin());
    *line.front().taken = true;
    line.pop_front();
    changed_.notify_all();
  }
  void wait_taken(int from, int to, const bool& taken) {
    std::unique_lock<std::mutex> lock(mutex_);
    wait(lock, from, {Doing::sends, to}, [&] { return taken; });
  }
  void leave(int rank) {
    const std::lock_guard<std::mutex> guard(mutex_);
    doing_[static_cast<std::size_t>(rank)] = {Doing::has_ended, 0, [] { return false; }};
    const bool somebody_waits = std::any_of(
        doing_.begin(), doing_.end(), [](const Doing& doing) { return doing.what != Doing::has_ended; });
    if (!somebody_waits || !is_stuck() || error_) return;
    error_ = std::make_exception_ptr(stuck());
    changed_.notify_all();
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
  void wait(std::unique_lock<std::mutex>& lock, int rank, Doing doing, Ready&& ready) {
    auto& own = doing_[static_cast<std::size_t>(rank)];
    own = {doing.what, doing.other, ready};
    const bool came = changed_.wait_for(lock, is_stuck() ? std::chrono::seconds(0) : kStuckAfter,
                                        [&] { return error_ || ready(); });
    const auto nothing_came = came ? std::nullopt : std::optional(stuck());
    own = {};  // what it waited for may be gone soon
    if (error_) throw Error("another rank has failed");
    if (nothing_came) throw *nothing_came;
  }
  // all wait, and for nothing that is there: no need for patience
  bool is_stuck() const {
    return std::none_of(doing_.begin(), doing_.end(), [](const Doing& doing) { return doing.can_go_on(); });
  }
  Error stuck() const { return Error(who_waits(), "", advice()); }
  std::string who_waits() const {
    std::vector<std::string> words;
    for (std::size_t rank = 0; rank < doing_.size(); ++rank)
      words.push_back(described(static_cast<int>(rank), doing_[rank]));
    return headline() + ": " + base::join(words, "; ");
  }
  bool waits_for_one_who_has_ended(Doing::What what) const {
    return std::any_of(doing_.begin(), doing_.end(), [&](const Doing& doing) {
      return doing.what == what && doing_[static_cast<std::size_t>(doing.other)].what == Doing::has_ended &&
             !doing.can_go_on();
    });
  }
  bool waits_for_itself() const {
    for (std::size_t rank = 0; rank < doing_.size(); ++rank)
      if (waits(doing_[rank]) && doing_[rank].other == static_cast<int>(rank)) return true;
    return false;
  }
  bool all_that_wait(Doing::What what) const {
    return std::none_of(doing_.begin(), doing_.end(),
                        [&](const Doing& doing) { return waits(doing) && doing.what != what; });
  }
  const char* advice() const {
    if (waits_for_itself())
      return "a rank has its own numbers already: it sends itself nothing, and waits for nothing of its own";
    if (waits_for_one_who_has_ended(Doing::receives))
      return "each receive() needs a send() to it: the rank that is waited for ended without";
    if (waits_for_one_who_has_ended(Doing::sends))
      return "each send() needs a receive() of it: the rank that is to receive ended without";
    if (all_that_wait(Doing::receives))
      return "a message has to be sent before it comes: while all receive, nobody sends";
    if (all_that_wait(Doing::sends))
      return "a message waits for its receiver: while all send, nobody receives; and a receive() into an "
             "empty vector takes no message";
    return "a send() and its receive() belong together: follow who waits for whom, round to where it began";
  }
  std::string headline() const {
    if (waits_for_one_who_has_ended(Doing::receives)) return "a message is waited for that nobody sends";
    if (waits_for_one_who_has_ended(Doing::sends)) return "a message is sent that nobody receives";
    return "the ranks wait for each other";
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Letter>> lines_;
  std::vector<Doing> doing_;
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
      for (std::size_t i = 0; i < out.size(); ++i) post_.wait_taken(rank_, out[i].to, taken[i]);
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
        post.leave(rank);
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
