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
struct Activity {
  enum What { works, receives, sends, has_ended } what = works;
  int other = 0;
  std::function<bool()> can_go_on = [] { return true; };
};

bool waits(const Activity& activity) {
  return activity.what == Activity::receives || activity.what == Activity::sends;
}

std::string described(int rank, const Activity& activity) {
  switch (activity.what) {
    case Activity::receives:
      return format("rank {} waits for a message from rank {}", rank, activity.other);
    case Activity::sends:
      return format("rank {} waits until rank {} receives its message", rank, activity.other);
    case Activity::has_ended:
      return format("rank {} has ended", rank);
    case Activity::works:
      break;
  }
  return format("rank {} is running", rank);
}

// What lies between the ranks.
class Mailbox {
 public:
  explicit Mailbox(std::vector<int> nodes) : nodes(std::move(nodes)), activities_(this->nodes.size()) {}

  void put(int from, const Outgoing& message, bool* taken) {
    const std::lock_guard<std::mutex> guard(mutex_);
    queues_[{from, message.to}].push_back({message.bytes, taken});
    changed_.notify_all();
  }
  void take(int to, const Incoming& message) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto& queue = queues_[{message.from, to}];
    wait(lock, to, {Activity::receives, message.from}, [&] { return !queue.empty(); });
    if (queue.front().bytes.size() != message.bytes.size())
      throw Error(format("rank {} sent {} bytes, but rank {} expects {}", message.from,
                         queue.front().bytes.size(), to, message.bytes.size()),
                  "", "make the receiver's buffer as large as the message");
    std::copy(queue.front().bytes.begin(), queue.front().bytes.end(), message.bytes.begin());
    *queue.front().taken = true;
    queue.pop_front();
    changed_.notify_all();
  }
  void wait_taken(int from, int to, const bool& taken) {
    std::unique_lock<std::mutex> lock(mutex_);
    wait(lock, from, {Activity::sends, to}, [&] { return taken; });
  }
  void leave(int rank) {
    const std::lock_guard<std::mutex> guard(mutex_);
    activities_[static_cast<std::size_t>(rank)] = {Activity::has_ended, 0, [] { return false; }};
    const bool somebody_waits =
        std::any_of(activities_.begin(), activities_.end(),
                    [](const Activity& activity) { return activity.what != Activity::has_ended; });
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
  struct Message {
    std::span<const std::byte> bytes;
    bool* taken;
  };

  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, int rank, Activity activity, Ready&& ready) {
    auto& own = activities_[static_cast<std::size_t>(rank)];
    own = {activity.what, activity.other, ready};
    const bool came = changed_.wait_for(lock, is_stuck() ? std::chrono::seconds(0) : kStuckAfter,
                                        [&] { return error_ || ready(); });
    const auto nothing_came = came ? std::nullopt : std::optional(stuck());
    own = {};  // what it waited for may be gone soon
    if (error_) throw Error("another rank has failed");
    if (nothing_came) throw *nothing_came;
  }
  // all wait, and for nothing that is there: no need for patience
  bool is_stuck() const {
    return std::none_of(activities_.begin(), activities_.end(),
                        [](const Activity& activity) { return activity.can_go_on(); });
  }
  Error stuck() const { return Error(describe_waits(), "", advice()); }
  std::string describe_waits() const {
    std::vector<std::string> words;
    for (std::size_t rank = 0; rank < activities_.size(); ++rank)
      words.push_back(described(static_cast<int>(rank), activities_[rank]));
    return headline() + ": " + base::join(words, "; ");
  }
  bool waits_for_ended_rank(Activity::What what) const {
    return std::any_of(activities_.begin(), activities_.end(), [&](const Activity& activity) {
      return activity.what == what &&
             activities_[static_cast<std::size_t>(activity.other)].what == Activity::has_ended &&
             !activity.can_go_on();
    });
  }
  bool waits_for_itself() const {
    for (std::size_t rank = 0; rank < activities_.size(); ++rank)
      if (waits(activities_[rank]) && activities_[rank].other == static_cast<int>(rank)) return true;
    return false;
  }
  bool all_waits_are(Activity::What what) const {
    return std::none_of(activities_.begin(), activities_.end(),
                        [&](const Activity& activity) { return waits(activity) && activity.what != what; });
  }
  const char* advice() const {
    if (waits_for_itself()) return "do not send from a rank to itself: it already has its own numbers";
    if (waits_for_ended_rank(Activity::receives))
      return "add the send() for this receive(): the sender ended without one";
    if (waits_for_ended_rank(Activity::sends))
      return "add the receive() for this send(): the receiver ended without one";
    if (all_waits_are(Activity::receives))
      return "let one rank send first: while every rank receives, no rank sends";
    if (all_waits_are(Activity::sends))
      return "let one rank receive first: while every rank sends, no rank receives; a receive() into an "
             "empty vector takes no message";
    return "match each send() with its receive(): find the cycle of ranks that wait for each other";
  }
  std::string headline() const {
    if (waits_for_ended_rank(Activity::receives)) return "a rank waits for a message that no rank sends";
    if (waits_for_ended_rank(Activity::sends)) return "a rank sends a message that no rank receives";
    return "the ranks wait for each other";
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Message>> queues_;
  std::vector<Activity> activities_;
  std::exception_ptr error_;
};

class LocalMessenger : public Messenger {
 public:
  LocalMessenger(Mailbox& mailbox, int rank) : mailbox_(mailbox), rank_(rank) {}
  int rank() const override { return rank_; }
  int world() const override { return static_cast<int>(mailbox_.nodes.size()); }
  int node_of(int rank) const override { return mailbox_.nodes[static_cast<std::size_t>(rank)]; }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::deque<bool> taken(out.size(), false);
    try {
      for (std::size_t i = 0; i < out.size(); ++i) mailbox_.put(rank_, out[i], &taken[i]);
      for (const auto& message : in) mailbox_.take(rank_, message);
      for (std::size_t i = 0; i < out.size(); ++i) mailbox_.wait_taken(rank_, out[i].to, taken[i]);
    } catch (...) {
      mailbox_.fail(std::current_exception());  // while what the messages point to is still there
      throw;
    }
  }

 private:
  Mailbox& mailbox_;
  int rank_;
};

}  // namespace

void run_as_ranks(const std::vector<int>& nodes, const std::function<void(Messenger&)>& body) {
  Mailbox mailbox(nodes);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    threads.emplace_back([&mailbox, &body, rank] {
      try {
        LocalMessenger messenger(mailbox, rank);
        body(messenger);
        mailbox.leave(rank);
      } catch (...) {
        mailbox.fail(std::current_exception());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  mailbox.rethrow();
}

void run_as_ranks(int world, const std::function<void(Messenger&)>& body) {
  run_as_ranks(std::vector<int>(static_cast<std::size_t>(world), 0), body);
}

}  // namespace lockstep
