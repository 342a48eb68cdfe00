#include "lockstep/comm/rendezvous/exchange.h"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/rendezvous/peers.h"

namespace lockstep::comm {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Member, rank, world, host, job_id, user, pid, pid_space)

namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr const char* kRankZeroKey = "rank0";  // set as soon as others may come
constexpr const char* kNote = "note";
constexpr Milliseconds kRankZeroGrace{2000};  // the others wait longer: rank 0 waits for the full time first
constexpr Milliseconds kReadingTime{1000};    // in which the others read the last answer
constexpr Milliseconds kTimerError{50};
constexpr Milliseconds kLook{500};                // between two looks whether a rank was killed
constexpr int kMostOnOneMachine = 4096;           // a larger world is a typing mistake
constexpr size_t kLargestText = size_t{7} << 20;  // a TCPStore closes the connection at 8 MiB
const char* const kLookInLog = "look in the log for an earlier error of that rank; it may have been killed";
const char* const kSlowOrMissing =
    "look in the log for an earlier error of that rank; raise launch.join_timeout if it is only slow";

std::string name_of(const Member& member) {
  return format("rank {} (host {}, pid {})", member.rank, base::printable(member.host), member.pid);
}

std::string job_name(const Member& member) {
  return member.job_id.empty() ? format("user id {}", member.user)
                               : format("job {} of user id {}", base::printable(member.job_id), member.user);
}

bool same_job(const Member& one, const Member& other) {
  return one.user == other.user && (one.job_id.empty() || other.job_id.empty() || one.job_id == other.job_id);
}

std::string text_key(int turn, int rank) {
  return format("{}/{}", turn, rank);
}
std::string count_key(int turn) {
  return format("{}/come", turn);
}
// Empty, or the error that ends this turn on rank 0.
std::string all_key(int turn) {
  return format("{}/all", turn);
}
std::string answer_key(int turn) {
  return format("answer/{}", turn);
}
std::string read_key(int turn) {
  return format("read/{}", turn);
}
std::string member_key(int rank) {
  return rank == 0 ? kRankZeroKey : format("come/{}", rank);
}

class StoreExchange : public launch::TextExchange {
 public:
  StoreExchange(StorePtr store, Member own, ExchangeOptions options)
      : store_(std::move(store)), own_(std::move(own)), options_(std::move(options)) {}

  ~StoreExchange() override {
    try {
      leave();
    } catch (const std::exception&) {  // the store is gone, and no rank waits for this one
    }
  }

  // Returns once all ranks have come.
  void meet() {
    joined_ = own_.rank == 0;
    own_.rank == 0 ? store_->set(kRankZeroKey, base::as_line(nlohmann::json(own_))) : register_member();
    joined_ = true;
    gather("");
    broadcast("");
  }

  std::vector<std::string> gather(const std::string& text) override {
    const int turn = gathered_++;
    put(text_key(turn, own_.rank), text);
    // the last to come wakes rank 0: waiting for one key costs the same in any world
    if (store_->add(count_key(turn), 1) == own_.world) store_->set(all_key(turn), std::string());
    if (own_.rank != 0) return {};
    if (!wait_for(all_key(turn), options_.timeout)) fail(base::pack_error(missing(turn)));
    if (const auto error = store_->get_to_str(all_key(turn)); !error.empty()) fail(error);
    std::vector<std::string> texts;
    for (int rank = 0; rank < own_.world; ++rank) {
      texts.push_back(store_->get_to_str(text_key(turn, rank)));
      store_->deleteKey(text_key(turn, rank));
    }
    return texts;
  }

  std::string broadcast(const std::string& text) override {
    const int turn = answered_++;
    if (own_.rank == 0) {
      put(answer_key(turn), base::pack_outcome([&] { return text; }));
      return text;
    }
    if (!wait_for(answer_key(turn), options_.timeout + kRankZeroGrace)) {
      throw Error(
          format("rank 0 did not respond within {} during start-up", base::in_seconds(options_.timeout)),
          place_of(own_), "check that process: it may be stopped, or still waiting for another rank")
          .of(Code::not_joined, {0});
    }
    const std::string answer = store_->get_to_str(answer_key(turn));
    if (store_->add(read_key(turn), 1) == own_.world - 1) store_->set(read_key(turn) + "/all", std::string());
    return base::unpack_outcome(answer);
  }

  std::string address() const override { return options_.address; }

 private:
  void put(const std::string& key, const std::string& text) {
    if (text.size() > kLargestText) {
      throw Error(format("a text of {} bytes is too large for an exchange between ranks", text.size()),
                  place_of(own_), format("the limit is {} bytes", kLargestText));
    }
    store_->set(key, text);
  }

  // False at the timeout.
  bool wait_for(const std::string& key, Milliseconds timeout) {
    for (const base::Deadline deadline(timeout);;) {
      const auto left = std::max(deadline.left(), Milliseconds(1));  // a store waits forever for zero
      const auto time = options_.one_machine ? std::min(left, kLook) : left;
      const base::Deadline look(time);
      try {
        store_->wait({key}, time);
        return true;
      } catch (const Error&) {  // the store is damaged
        throw;
      } catch (const std::exception&) {
        if (look.left() > kTimerError) {
          throw Error(
              "rank 0 left while the ranks were joining", place_of(own_),
              "look in the log for an earlier error of rank 0; under torchrun its agent may have ended")
              .of(Code::not_joined, {0});
        }
      }
      if (deadline.left() <= kTimerError) return false;
      if (options_.one_machine && !store_->check({key})) require_ranks_alive();
    }
  }

  // Rank 0 looks at the ranks that have come and still take part, the others look at rank 0. After the first
  // meeting a rank may end as soon as it has given its text.
  void require_ranks_alive() {
    if (own_.rank != 0) return require_alive(0);
    for (int rank = 1; rank < std::min(own_.world, kMostOnOneMachine); ++rank)
      if (gathered_ == 1 || !store_->check({text_key(gathered_ - 1, rank)})) require_alive(rank);
  }

  void require_alive(int rank) {
    if (!others_.contains(rank)) {
      if (!store_->check({member_key(rank)})) return;
      others_.emplace(rank, base::from_rank<Member>(store_->get_to_str(member_key(rank))));
    }
    const Member& other = others_.at(rank);
    if (other.pid_space != own_.pid_space || process_state(other.pid) != ProcessState::gone) return;
    const Error error =
        Error(format("{} ended while the ranks were joining", name_of(other)), place_of(own_), kLookInLog)
            .of(Code::not_joined, {rank});
    if (own_.rank == 0) fail(base::pack_error(error));
    throw Error(error);
  }

  void register_member() {
    if (!wait_for(kRankZeroKey, options_.timeout)) throw not_joined_error("rank 0", {0}, "");
    const Member zero = base::from_rank<Member>(store_->get_to_str(kRankZeroKey));
    if (!same_job(own_, zero)) {
      refuse(format("{} belongs to {}, but rank 0 (host {}) belongs to {}", name_of(own_), job_name(own_),
                    base::printable(zero.host), job_name(zero)),
             "set a different MASTER_PORT for each job");
    }
    if (own_.world != zero.world) refuse_world(zero);
    auto json = nlohmann::json(own_);
    json["word"] = base::random_word();  // all else may be equal
    const std::string mine = base::as_line(json);
    const auto first = store_->compareSet(member_key(own_.rank), std::string(), mine);
    if (first == mine) return;
    refuse(format("two processes have rank {}: {} came first, {} second", own_.rank,
                  name_of(base::from_rank<Member>(first)), name_of(own_)),
           "set a different RANK for each process, and a different MASTER_PORT for each job");
  }

  // Rank 0 adds the note to its own error if it times out.
  [[noreturn]] void refuse(const std::string& what, const char* hint) {
    store_->set(kNote, what);
    throw InputError(what, place_of(own_), hint);
  }

  // Rank 0 cannot know which ranks to wait for, so this ends the start for all.
  [[noreturn]] void refuse_world(const Member& zero) {
    const InputError error(
        format("the ranks have different world sizes: {} on rank 0 (host {}), {} on {}", zero.world,
               base::printable(zero.host), own_.world, name_of(own_)),
        place_of(own_),
        "set the same WORLD_SIZE on every rank; if these are two jobs, set a different MASTER_PORT for each");
    store_->set(all_key(0), base::pack_error(error));
    throw InputError(error);
  }

  Error not_joined_error(const std::string& names, std::vector<int> ranks, const std::string& note) {
    return Error(format("{} did not join the group within {}", names, base::in_seconds(options_.timeout)),
                 place_of(own_) + note, kSlowOrMissing)
        .of(Code::not_joined, std::move(ranks));
  }

  // The world size may be wrong and huge, so this looks only for the ranks that a message names.
  Error missing(int turn) {
    std::vector<int> ranks;
    for (int rank = 0; rank < own_.world && ranks.size() < base::kNamedRanks + 1; ++rank)
      if (!store_->check({text_key(turn, rank)})) ranks.push_back(rank);
    const auto come = static_cast<size_t>(store_->add(count_key(turn), 0));
    const auto names = base::rank_list(ranks, static_cast<size_t>(own_.world) - come);
    if (turn == 0)
      return not_joined_error(names, ranks, store_->check({kNote}) ? "; " + store_->get_to_str(kNote) : "");
    return Error(format("{} did not respond within {} during start-up", names,
                        base::in_seconds(options_.timeout)),
                 place_of(own_), "check that process: it may be stopped, or waiting for a slow disk")
        .of(Code::not_joined, ranks);
  }

  [[noreturn]] void fail(const std::string& packed_error) {
    answer_with_error(answered_++, packed_error);
    base::throw_packed_error(packed_error);
  }

  void answer_with_error(int turn, const std::string& packed_error) {
    const auto outcome = base::pack_outcome([&]() -> std::string { base::throw_packed_error(packed_error); });
    store_->set(answer_key(turn), outcome);
  }

  // A rank that ends by an error tells the others, which may wait for it. Rank 0 keeps its store until all
  // have read the last answer.
  void leave() {
    if (joined_ && std::uncaught_exceptions() > exceptions_at_start_) {
      const auto error = base::pack_error(
          Error(format("rank {} left while the ranks were joining", own_.rank), place_of(own_), kLookInLog)
              .of(Code::not_joined, {own_.rank}));
      own_.rank == 0 ? answer_with_error(answered_, error) : store_->set(all_key(gathered_), error);
    }
    if (options_.serves && own_.world > 1 && answered_ > 0)
      store_->wait({read_key(answered_ - 1) + "/all"}, kReadingTime);
  }

  StorePtr store_;
  Member own_;
  ExchangeOptions options_;
  std::map<int, Member> others_;  // those that were looked at
  int gathered_ = 0, answered_ = 0;
  bool joined_ = true;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace

Member member_of(const Job& job) {
  return {.rank = job.rank, .world = job.world, .host = job.host, .job_id = job.job_id};
}

std::string place_of(const Member& member) {
  return format("rank {} of {} on host {}", member.rank, member.world, member.host);
}

std::unique_ptr<launch::TextExchange> exchange_over(StorePtr store, const Member& own,
                                                    const ExchangeOptions& options) {
  return std::make_unique<StoreExchange>(std::move(store), own, options);
}

std::unique_ptr<launch::TextExchange> join_over(StorePtr store, const Member& own,
                                                const ExchangeOptions& options) {
  auto exchange = std::make_unique<StoreExchange>(std::move(store), own, options);
  exchange->meet();
  return exchange;
}

}  // namespace lockstep::comm
