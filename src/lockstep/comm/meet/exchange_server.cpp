#include "lockstep/comm/meet/exchange_server.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/peer_user.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/comm/meet/secret.h"
#include "lockstep/comm/meet/wire.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr ptrdiff_t kFewUnproven = 256;  // that are listened to at a time, or two a rank

std::string own_side(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return "";
  }
  return text.data();
}

class ExchangeServer : public launch::TextExchange {
  struct Caller {
    Wire line;
    bool is_proven = false;  // by the kernel: this user's, on this machine
    std::string nonce = {};
    std::optional<Hello> hello = {};  // once he is asked for a proof
  };

 public:
  ExchangeServer(const Listener& listener, std::string word, ExchangeOptions options)
      : listener_(listener.socket),
        word_(std::move(word)),
        mark_(mark_of(word_)),
        options_(std::move(options)) {
    deadline_ = Clock::now() + options_.timeout;
    while (!all_have_come() && Clock::now() < deadline_) wait_for_somebody();
    listener_.close();
    knocking_.clear();
    if (!refusal_.empty()) fail_with(refusal_);
    if (!all_have_come()) fail(missing());
    for (auto& [rank, line] : seats_) line.send({.body = kWelcome}, Clock::now() + kTell);
  }

  std::vector<std::string> gather(const std::string& text) override {
    std::vector<std::string> texts(static_cast<size_t>(options_.world));
    texts[0] = text;
    std::map<int, Wire*> awaited;
    for (auto& [rank, line] : seats_) awaited.emplace(rank, &line);
    const auto deadline = Clock::now() + options_.timeout;
    while (!awaited.empty()) {
      take_what_came(awaited, texts);
      if (awaited.empty()) break;
      if (Clock::now() >= deadline) fail(silent(awaited));
      wait_for(awaited, deadline);
    }
    return texts;
  }

  std::string broadcast(const std::string& text) override {
    for (auto& [rank, line] : seats_) {
      if (!line.send({.body = text}, Clock::now() + options_.timeout)) fail(left(rank, options_));
    }
    return text;
  }

  std::string address() const override { return address_; }

 private:
  bool all_have_come() const { return seats_.size() + 1 == static_cast<size_t>(options_.world); }

  void wait_for_somebody() {
    std::vector<pollfd> sockets = {{listener_.number(), POLLIN, 0}};
    for (const auto& caller : knocking_) sockets.push_back({caller.line.number(), POLLIN, 0});
    ::poll(sockets.data(), sockets.size(), milliseconds_until(deadline_));
    if (sockets[0].revents) let_in();
    for (auto caller = knocking_.begin(); caller != knocking_.end();) {
      caller = hear(*caller) ? knocking_.erase(caller) : std::next(caller);
    }
  }

  // Another user's process of this machine is hung up on; so is the one that has waited longest where many
  // prove nothing.
  void let_in() {
    base::Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kRetry);
      return;
    }
    const auto user = options_.asks_kernel ? user_at_other_end(socket.number()) : std::nullopt;
    if (user && *user != ::geteuid()) return;
    knocking_.push_back({.line = Wire(std::move(socket)), .is_proven = user.has_value()});
    const auto unproven = [](const Caller& caller) { return !caller.is_proven; };
    const auto most = std::max(kFewUnproven, static_cast<ptrdiff_t>(options_.world) * 2);
    if (std::ranges::count_if(knocking_, unproven) > most)
      knocking_.erase(std::ranges::find_if(knocking_, unproven));
  }

  // True once this caller has said what he wants, or has gone: he is at his seat then, or dropped.
  bool hear(Caller& caller) {
    try {
      // who waits too long for an answer hangs up and calls again
      if (!caller.line.read_some(kLargestHello)) return true;
      const auto message = caller.line.take(kLargestHello);
      return message && answer(caller, message->body);
    } catch (const Wire::Foreign& foreign) {
      if (foreign.said.starts_with(kAnyVersion))
        doubted_ = "somebody called with another version of lockstep";
      return true;
    }
  }

  bool answer(Caller& caller, const std::string& said) {
    if (caller.hello) {
      const auto proof = callers_proof(secret(), *caller.hello, caller.nonce);
      if (is_same_seal(said, proof)) seat(*caller.hello, caller.line);
      return true;
    }
    auto hello = unpack_hello(said);
    if (!hello || hello->mark != mark_) return true;
    if (caller.is_proven) {
      seat(*hello, caller.line);
      return true;
    }
    return challenge(caller, *std::move(hello));
  }

  // What is wrong with this rank's own secret is said where somebody has not come, and ends nothing before.
  bool challenge(Caller& caller, Hello hello) {
    doubted_ = format("who said to be {} did not know this job's secret", name_of(hello));
    caller.nonce = fresh_word();
    try {
      const Challenge challenge{caller.nonce, rank_zeros_proof(secret(), hello, caller.nonce)};
      caller.line.send({.body = pack(challenge)}, Clock::now());
    } catch (const InputError& error) {
      doubted_ = format("{} has to prove that it belongs to the job: {}", name_of(hello), describe(error));
      return true;
    }
    caller.hello = std::move(hello);
    return false;
  }

  const std::string& secret() {
    if (secret_.empty()) secret_ = word_.empty() ? job_secret() : word_;
    return secret_;
  }

  void seat(const Hello& hello, Wire& line) {
    doubted_.clear();
    if (hello.world != options_.world) return refuse_world(hello, line);
    if (hello.rank < 1 || hello.rank >= options_.world) return;
    if (const auto taken = names_.find(hello.rank); taken != names_.end()) return turn_away(hello, line);
    if (address_.empty()) address_ = own_side(line.number());
    names_.emplace(hello.rank, name_of(hello));
    line.send({.body = kSeated}, Clock::now() + kTell);
    seats_.emplace(hello.rank, std::move(line));
  }

  void turn_away(const Hello& hello, Wire& line) {
    const InputError error(format("two processes say that they are rank {}: {} came first, {} second",
                                  hello.rank, names_[hello.rank], name_of(hello)),
                           place_of(options_),
                           "give each process a RANK of its own, and each job a MASTER_PORT of its own");
    turned_away_ = error.what();
    line.send({WireMessage::error, base::pack_error(error)}, Clock::now() + kTell);
  }

  void refuse_world(const Hello& hello, Wire& line) {
    const InputError error(
        format("the ranks do not agree how many they are: {} for rank 0 (host {}), {} for {}", options_.world,
               options_.host, hello.world, name_of(hello)),
        place_of(options_),
        "set the same WORLD_SIZE on every rank; where these are two jobs, give each a MASTER_PORT of its "
        "own");
    refusal_ = base::pack_error(error);
    line.send({WireMessage::error, refusal_}, Clock::now() + kTell);
    deadline_ = std::min(deadline_, Clock::now() + kTell);
  }

  Error missing() const {
    std::vector<int> first;
    for (int rank = 1; rank < options_.world && first.size() < kNamedRanks + 1; ++rank) {
      if (!seats_.contains(rank)) first.push_back(rank);
    }
    const auto count = static_cast<size_t>(options_.world) - 1 - seats_.size();
    return Error(format("{} did not come to join the group within {}", rank_list(first, count),
                        seconds(options_.timeout)),
                 place_of(options_) + (turned_away_.empty() ? "" : "; " + turned_away_) +
                     (doubted_.empty() ? "" : "; " + doubted_),
                 "look in the log for an earlier error of that rank; raise launch.join_timeout if it is only "
                 "slow")
        .of(Code::not_joined, first);
  }

  Error silent(const std::map<int, Wire*>& awaited) const {
    std::vector<int> ranks;
    for (const auto& [rank, line] : awaited) ranks.push_back(rank);
    return Error(format("no word from {} for {} while the ranks were joining", rank_list(ranks),
                        seconds(options_.timeout)),
                 place_of(options_), "look at that process: it may be stopped, or busy with a slow disk")
        .of(Code::not_joined, ranks);
  }

  void take_what_came(std::map<int, Wire*>& awaited, std::vector<std::string>& texts) {
    for (auto it = awaited.begin(); it != awaited.end();) {
      const auto [rank, line] = *it;
      const bool open = line->read_some(kLargestText);
      auto message = taken_from(*line, rank);
      if (!message && !open) fail(left(rank, options_));
      if (message) texts[static_cast<size_t>(rank)] = std::move(message->body);
      it = message ? awaited.erase(it) : std::next(it);
    }
  }

  std::optional<WireMessage> taken_from(Wire& line, int rank) {
    try {
      return line.take(kLargestText);
    } catch (const Wire::Foreign&) {
      fail(left(rank, options_));
    }
  }

  static void wait_for(const std::map<int, Wire*>& awaited, Deadline deadline) {
    std::vector<pollfd> sockets;
    for (const auto& [rank, line] : awaited) sockets.push_back({line->number(), POLLIN, 0});
    ::poll(sockets.data(), sockets.size(), milliseconds_until(deadline));
  }

  [[noreturn]] void fail(const Error& error) { fail_with(base::pack_error(error)); }

  [[noreturn]] void fail_with(const std::string& error) {
    for (auto& [rank, line] : seats_) line.send({WireMessage::error, error}, Clock::now() + kTell);
    base::throw_packed_error(error);
  }

  base::Descriptor listener_;
  std::string word_, mark_;
  ExchangeOptions options_;
  Deadline deadline_;
  std::list<Caller> knocking_;
  std::map<int, Wire> seats_;
  std::map<int, std::string> names_;
  std::string address_;
  std::string refusal_;
  std::string turned_away_;
  std::string doubted_;
  std::string secret_;
};

}  // namespace

std::unique_ptr<launch::TextExchange> serve_exchange(const Listener& listener, const std::string& word,
                                                     const ExchangeOptions& options) {
  return std::make_unique<ExchangeServer>(listener, word, options);
}

}  // namespace lockstep::comm
