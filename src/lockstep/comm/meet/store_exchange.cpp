#include "lockstep/comm/meet/store_exchange.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/comm/meet/socket_exchange.h"

namespace lockstep::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr char kText = 'T', kError = 'E';

class StoreExchange : public launch::TextExchange {
 public:
  StoreExchange(StorePtr store, const Job& job, Milliseconds timeout)
      : store_(std::move(store)), rank_(job.rank), world_(job.world), host_(job.host), timeout_(timeout) {}

  std::vector<std::string> gather(const std::string& text) override {
    const auto keys = keys_of(gathered_++);
    store_->set(keys[static_cast<size_t>(rank_)], text);
    if (rank_ != 0) return {};
    if (!wait_for(keys, timeout_)) fail(missing(keys));
    std::vector<std::string> texts;
    for (const auto& value : store_->multiGet(keys)) texts.emplace_back(value.begin(), value.end());
    return texts;
  }

  std::string broadcast(const std::string& text) override {
    const auto key = answer_key(answered_++);
    if (rank_ == 0) {
      store_->set(key, kText + text);
      return text;
    }
    if (!wait_for({key}, timeout_ + kRankZeroGrace)) throw missing({key});
    const std::string answer = store_->get_to_str(key);
    if (answer.empty() || answer[0] == kError)
      base::throw_packed_error(answer.substr(answer.empty() ? 0 : 1));
    return answer.substr(1);
  }

 private:
  std::vector<std::string> keys_of(int turn) const {
    std::vector<std::string> keys;
    for (int rank = 0; rank < world_; ++rank) keys.push_back(format("circle/{}/{}", turn, rank));
    return keys;
  }

  // as in 0.1: ranks of two versions meet here before they compare them
  static std::string answer_key(int turn) { return format("circle/answer/{}", turn); }

  bool wait_for(const std::vector<std::string>& keys, Milliseconds timeout) {
    try {
      store_->wait(keys, timeout);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  // of rank 0's keys those of the ranks; elsewhere the one key is rank 0's
  Error missing(const std::vector<std::string>& keys) {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < keys.size(); ++rank) {
      if (!store_->check({keys[rank]})) ranks.push_back(static_cast<int>(rank));
    }
    return Error(format("{} did not come to join the group within {} s", rank_list(ranks),
                        timeout_.count() / 1000.0),
                 format("rank {} of {} on host {}", rank_, world_, host_),
                 "look in the log for an earlier error of that rank; raise launch.join_timeout if it is only "
                 "slow")
        .of(Code::not_joined, ranks);
  }

  [[noreturn]] void fail(const Error& error) {
    store_->set(answer_key(answered_), kError + base::pack_error(error));
    throw Error(error);
  }

  StorePtr store_;
  int rank_, world_;
  std::string host_;
  Milliseconds timeout_;
  int gathered_ = 0, answered_ = 0;
};

}  // namespace

std::unique_ptr<launch::TextExchange> exchange_over(StorePtr store, const Job& job, Milliseconds timeout) {
  return std::make_unique<StoreExchange>(std::move(store), job, timeout);
}

}  // namespace lockstep::comm
