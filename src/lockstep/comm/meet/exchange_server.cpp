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

#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/interface.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/comm/meet/wire.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPending = 256;  // connections without a hello at a time, or two for each rank

using AddressCall = int (*)(int, sockaddr*, socklen_t*);  // getsockname or getpeername

// Empty for a Unix socket.
std::string internet_address(int socket, AddressCall call) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (call(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 || address.ss_family == AF_UNIX)
    return "";
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return "";
  }
  return text.data();
}

std::string job_of(uid_t user, const std::string& job_id) {
  return job_id.empty() ? format("user id {}", user)
                        : format("job {} of user id {}", base::printable(job_id), user);
}

class ExchangeServer : public launch::TextExchange {
 public:
  ExchangeServer(const std::vector<int>& listeners, std::string word, ExchangeOptions options)
      : own_(own_hello(options, word)), options_(std::move(options)) {
    deadline_ = Clock::now() + options_.timeout;
    while (!all_have_come() && Clock::now() < deadline_) poll_once(listeners);
    pending_.clear();
    if (!refusal_.empty()) fail_with(refusal_);
    if (!all_have_come()) fail(missing());
    for (auto& [rank, line] : lines_) line.send({.body = kComplete}, Clock::now() + kErrorTime);
  }

  std::vector<std::string> gather(const std::string& text) override {
    std::vector<std::string> texts(static_cast<size_t>(options_.world));
    texts[0] = text;
    std::map<int, Wire*> awaited;
    for (auto& [rank, line] : lines_) awaited.emplace(rank, &line);
    const auto deadline = Clock::now() + options_.timeout;
    while (!awaited.empty()) {
      take_texts(awaited, texts);
      if (awaited.empty()) break;
      if (Clock::now() >= deadline) fail(silent(awaited));
      wait_for(awaited, deadline);
    }
    return texts;
  }

  std::string broadcast(const std::string& text) override {
    for (auto& [rank, line] : lines_) {
      if (!line.send({.body = text}, Clock::now() + options_.timeout)) fail(left(rank, options_));
    }
    return text;
  }

  std::string address() const override { return address_; }

 private:
  bool all_have_come() const { return lines_.size() + 1 == static_cast<size_t>(options_.world); }

  void poll_once(const std::vector<int>& listeners) {
    std::vector<pollfd> sockets;
    for (const int listener : listeners) sockets.push_back({listener, POLLIN, 0});
    for (const auto& line : pending_) sockets.push_back({line.number(), POLLIN, 0});
    const auto members = sockets.size();
    for (const auto& [rank, line] : lines_) sockets.push_back({line.number(), POLLIN, 0});
    ::poll(sockets.data(), sockets.size(), milliseconds_until(deadline_));
    // a rank sends nothing before all have come: its connection becomes readable when it closes
    auto socket = sockets.begin() + static_cast<ptrdiff_t>(members);
    for (const auto& [rank, line] : lines_)
      if ((socket++)->revents && refusal_.empty()) fail(left(rank, options_));
    for (size_t i = 0; i < listeners.size(); ++i)
      if (sockets[i].revents) accept_from(listeners[i]);
    for (auto line = pending_.begin(); line != pending_.end();)
      line = read_hello(*line) ? pending_.erase(line) : std::next(line);
  }

  void accept_from(int listener) {
    base::Descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kRetry);
      return;
    }
    const auto peer = internet_address(socket.number(), ::getpeername);
    if (!peer.empty() && is_own_address(peer)) {
      note_ = "a process on this machine connected over TCP and was rejected";
      return;
    }
    pending_.emplace_back(std::move(socket));
    if (pending_.size() > std::max(kPending, static_cast<size_t>(options_.world) * 2)) pending_.pop_front();
  }

  // True once this connection is no longer pending: it belongs to a rank, or is closed.
  bool read_hello(Wire& line) {
    try {
      if (!line.read_some(kLargestHello)) return true;
      const auto message = line.take(kLargestHello);
      if (!message) return false;
      if (const auto hello = unpack_hello(message->body)) admit(*hello, line);
    } catch (const Wire::Foreign& foreign) {
      if (foreign.said.starts_with(kAnyVersion))
        note_ = "a process with another version of lockstep connected";
    }
    return true;
  }

  void admit(const Hello& hello, Wire& line) {
    if (hello.word != own_.word) return;  // another start of this job
    const bool same_job = hello.job_id.empty() || own_.job_id.empty() || hello.job_id == own_.job_id;
    if (hello.user != own_.user || !same_job) return reject_other_job(hello, line);
    if (hello.world != options_.world) return refuse_world(hello, line);
    if (hello.rank < 1 || hello.rank >= options_.world) return;
    if (names_.contains(hello.rank)) return reject_duplicate(hello, line);
    if (address_.empty()) address_ = internet_address(line.number(), ::getsockname);
    names_.emplace(hello.rank, name_of(hello));
    line.send({.body = kAccepted}, Clock::now() + kErrorTime);
    lines_.emplace(hello.rank, std::move(line));
  }

  void reject(const InputError& error, Wire& line) {
    note_ = error.what();
    line.send({WireMessage::error, base::pack_error(error)}, Clock::now() + kErrorTime);
  }

  void reject_other_job(const Hello& hello, Wire& line) {
    const InputError error(
        format("{} belongs to {}, but rank 0 (host {}) belongs to {}", name_of(hello),
               job_of(hello.user, hello.job_id), options_.host, job_of(own_.user, own_.job_id)),
        place_of(options_), "give each job a MASTER_PORT of its own");
    reject(error, line);
  }

  void reject_duplicate(const Hello& hello, Wire& line) {
    const InputError error(format("two processes say that they are rank {}: {} came first, {} second",
                                  hello.rank, names_[hello.rank], name_of(hello)),
                           place_of(options_),
                           "give each process a RANK of its own, and each job a MASTER_PORT of its own");
    reject(error, line);
  }

  void refuse_world(const Hello& hello, Wire& line) {
    const InputError error(
        format("the ranks do not agree how many they are: {} for rank 0 (host {}), {} for {}", options_.world,
               options_.host, hello.world, name_of(hello)),
        place_of(options_),
        "set the same WORLD_SIZE on every rank; where these are two jobs, give each a MASTER_PORT of its "
        "own");
    reject(error, line);
    refusal_ = base::pack_error(error);
    deadline_ = std::min(deadline_, Clock::now() + kErrorTime);
  }

  Error missing() const {
    std::vector<int> first;
    for (int rank = 1; rank < options_.world && first.size() < kNamedRanks + 1; ++rank) {
      if (!lines_.contains(rank)) first.push_back(rank);
    }
    const auto count = static_cast<size_t>(options_.world) - 1 - lines_.size();
    return Error(format("{} did not come to join the group within {}", rank_list(first, count),
                        seconds(options_.timeout)),
                 place_of(options_) + (note_.empty() ? "" : "; " + note_),
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

  void take_texts(std::map<int, Wire*>& awaited, std::vector<std::string>& texts) {
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
    for (auto& [rank, line] : lines_) line.send({WireMessage::error, error}, Clock::now() + kErrorTime);
    base::throw_packed_error(error);
  }

  Hello own_;
  ExchangeOptions options_;
  Deadline deadline_;
  std::list<Wire> pending_;
  std::map<int, Wire> lines_;
  std::map<int, std::string> names_;
  std::string address_;
  std::string refusal_;
  std::string note_;  // on the last connection that was rejected
};

}  // namespace

std::unique_ptr<launch::TextExchange> serve_exchange(const std::vector<int>& listeners,
                                                     const std::string& word,
                                                     const ExchangeOptions& options) {
  return std::make_unique<ExchangeServer>(listeners, word, options);
}

}  // namespace lockstep::comm
