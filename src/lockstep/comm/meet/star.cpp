#include "lockstep/comm/meet/star.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/pack.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/comm/meet/wire.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr size_t kLargestHello = 4096;
constexpr size_t kLargestText = size_t{256} << 20;
constexpr Milliseconds kRetry{50};
constexpr Milliseconds kSeat{5000};   // rank 0 answers at once
constexpr Milliseconds kTell{1000};   // for those to come that shall hear why the meeting fails
constexpr Milliseconds kGrace{2000};  // rank 0 waits for the full time before it speaks
constexpr size_t kQuoted = 40;
const char* const kSeated = "seated";    // at once: rank 0 is who answers
const char* const kWelcome = "welcome";  // once all have come

std::string seconds(Milliseconds time) {
  return format("{} s", time.count() / 1000.0);
}

std::string place_of(const StarOptions& options) {
  return format("rank {} of {} on host {}", options.rank, options.world, options.host);
}

Error left(const std::string& who, const StarOptions& options) {
  return Error(who + " left while the ranks were joining", place_of(options),
               "that rank's own error, earlier in the log, says why");
}

// What a rank says first, and what rank 0 makes of it.
struct Hello {
  int rank = 0;
  int world = 0;
  std::string word, host, pid;
};

std::string pack(const Hello& hello) {
  return base::pack_texts(
      {std::to_string(hello.rank), std::to_string(hello.world), hello.word, hello.host, hello.pid});
}

std::optional<Hello> unpack_hello(const std::string& text) {
  try {
    const auto parts = base::unpack_texts(text);
    if (parts.size() != 5) return std::nullopt;
    return Hello{std::stoi(parts[0]), std::stoi(parts[1]), parts[2], parts[3], parts[4]};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string name_of(const Hello& hello) {
  return format("rank {} (host {}, pid {})", hello.rank, base::printable(hello.host),
                base::printable(hello.pid));
}

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

// Rank 0's end.
class Hub : public launch::Circle {
 public:
  Hub(const Listener& listener, std::string word, StarOptions options)
      : listener_(listener.socket), word_(std::move(word)), options_(std::move(options)) {
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
      if (!line.send({.body = text}, Clock::now() + options_.timeout))
        fail(left(format("rank {}", rank), options_));
    }
    return text;
  }

  std::string address() const override { return address_; }

 private:
  bool all_have_come() const { return seats_.size() + 1 == static_cast<size_t>(options_.world); }

  void wait_for_somebody() {
    std::vector<pollfd> sockets = {{listener_.number(), POLLIN, 0}};
    for (const auto& line : knocking_) sockets.push_back({line.number(), POLLIN, 0});
    ::poll(sockets.data(), sockets.size(), milliseconds_until(deadline_));
    if (sockets[0].revents) let_in();
    for (auto line = knocking_.begin(); line != knocking_.end();) {
      line = hear(*line) ? knocking_.erase(line) : std::next(line);
    }
  }

  void let_in() {
    base::Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) return void(knocking_.emplace_back(std::move(socket)));
    if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kRetry);
  }

  // True once this line has said what it wants, or has gone: it is at its seat then, or dropped.
  bool hear(Wire& line) {
    try {
      // who waits too long for an answer hangs up and calls again
      if (!line.read_some(kLargestHello)) return true;
      const auto message = line.take(kLargestHello);
      if (!message) return false;
      if (const auto hello = unpack_hello(message->body)) seat(*hello, line);
      return true;
    } catch (const Wire::Foreign&) {
      return true;
    }
  }

  void seat(const Hello& hello, Wire& line) {
    if (hello.word != word_) return;
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
    line.send({Message::error, base::pack_error(error)}, Clock::now() + kTell);
  }

  void refuse_world(const Hello& hello, Wire& line) {
    const InputError error(
        format("the ranks do not agree how many they are: {} for rank 0 (host {}), {} for {}", options_.world,
               options_.host, hello.world, name_of(hello)),
        place_of(options_),
        "set the same WORLD_SIZE on every rank; where these are two jobs, give each a MASTER_PORT of its "
        "own");
    refusal_ = base::pack_error(error);
    line.send({Message::error, refusal_}, Clock::now() + kTell);
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
                 place_of(options_) + (turned_away_.empty() ? "" : "; " + turned_away_),
                 "look in the log for an earlier error of that rank; raise launch.join_timeout if it is only "
                 "slow");
  }

  Error silent(const std::map<int, Wire*>& awaited) const {
    std::vector<int> ranks;
    for (const auto& [rank, line] : awaited) ranks.push_back(rank);
    return Error(format("no word from {} for {} while the ranks were joining", rank_list(ranks),
                        seconds(options_.timeout)),
                 place_of(options_), "look at that process: it may be stopped, or busy with a slow disk");
  }

  void take_what_came(std::map<int, Wire*>& awaited, std::vector<std::string>& texts) {
    for (auto it = awaited.begin(); it != awaited.end();) {
      const auto [rank, line] = *it;
      const bool open = line->read_some(kLargestText);
      auto message = taken_from(*line, rank);
      if (!message && !open) fail(left(format("rank {}", rank), options_));
      if (message) texts[static_cast<size_t>(rank)] = std::move(message->body);
      it = message ? awaited.erase(it) : std::next(it);
    }
  }

  std::optional<Message> taken_from(Wire& line, int rank) {
    try {
      return line.take(kLargestText);
    } catch (const Wire::Foreign&) {
      fail(left(format("rank {}", rank), options_));
    }
  }

  static void wait_for(const std::map<int, Wire*>& awaited, Deadline deadline) {
    std::vector<pollfd> sockets;
    for (const auto& [rank, line] : awaited) sockets.push_back({line->number(), POLLIN, 0});
    ::poll(sockets.data(), sockets.size(), milliseconds_until(deadline));
  }

  [[noreturn]] void fail(const Error& error) { fail_with(base::pack_error(error)); }

  [[noreturn]] void fail_with(const std::string& error) {
    for (auto& [rank, line] : seats_) line.send({Message::error, error}, Clock::now() + kTell);
    base::throw_packed_error(error);
  }

  base::Descriptor listener_;
  std::string word_;
  StarOptions options_;
  Deadline deadline_;
  std::list<Wire> knocking_;
  std::map<int, Wire> seats_;
  std::map<int, std::string> names_;
  std::string address_;
  std::string refusal_;
  std::string turned_away_;
};

// Another rank's end.
class Spoke : public launch::Circle {
 public:
  Spoke(Wire line, StarOptions options) : line_(std::move(line)), options_(std::move(options)) {}

  std::vector<std::string> gather(const std::string& text) override {
    // where rank 0 has failed it has said why before it hung up
    if (!line_.send({.body = text}, Clock::now() + options_.timeout)) hear(Clock::now() + kTell);
    return {};
  }

  std::string broadcast(const std::string&) override {
    return hear(Clock::now() + options_.timeout + kGrace);
  }

 private:
  std::string hear(Deadline deadline) {
    std::optional<Message> message;
    try {
      message = line_.receive(kLargestText, deadline);
    } catch (const Wire::Foreign&) {
      throw left("rank 0", options_);
    } catch (const Wire::Gone&) {
      throw left("rank 0", options_);
    }
    if (!message) {
      throw Error(
          format("no word from rank 0 for {} while the ranks were joining", seconds(options_.timeout)),
          place_of(options_), "look at that process: it may be stopped, or busy with a slow disk");
    }
    if (message->kind == Message::error) base::throw_packed_error(message->body);
    return message->body;
  }

  Wire line_;
  StarOptions options_;
};

[[noreturn]] void refuse_foreign(const Spot& spot, const std::string& said, const StarOptions& options) {
  const auto line = said.substr(0, said.find_first_of("\r\n"));
  throw InputError(format("something else than this job answers at {} port {}{}", base::printable(spot.host),
                          spot.port, line.empty() ? "" : ": '" + base::printable(line, kQuoted) + "'"),
                   place_of(options), "choose another MASTER_PORT, the same on every rank");
}

// What the last try came to, for the error at the end of all tries.
struct Attempt {
  Spot spot;
  std::string why = "rank 0 has not said where it is";
  bool answered = false;
};

[[noreturn]] void give_up(const Attempt& last, const StarOptions& options) {
  const std::string place = format("{} port {}", base::printable(last.spot.host), last.spot.port);
  if (last.answered) {
    throw Error(format("something answers at {}, but not as rank 0 of this job within {}: {}", place,
                       seconds(options.timeout), last.why),
                place_of(options),
                "is that port another service's, or is rank 0 stopped? Choose another MASTER_PORT if so");
  }
  throw Error(
      last.spot.host.empty()
          ? format("rank 0 did not come within {}: {}", seconds(options.timeout), last.why)
          : format("nobody answered at {} within {} ({})", place, seconds(options.timeout), last.why),
      place_of(options),
      last.spot.host.empty()
          ? "look in the log for an earlier error of rank 0; raise launch.join_timeout if it is only slow"
          : format("rank 0 did not come, or {} is not reached from this node",
                   base::printable(last.spot.host)));
}

// A line on which rank 0 has answered, or nothing: then `attempt` says why.
std::optional<Wire> try_once(const Spot& spot, const StarOptions& options, Deadline deadline,
                             Attempt& attempt) {
  attempt.spot = spot;
  attempt.answered = false;
  try {
    Wire line = call(spot.host, spot.port, deadline);
    attempt.answered = true;
    attempt.why = "it takes the call and says nothing";
    const Hello hello{options.rank, options.world, spot.word, options.host, std::to_string(::getpid())};
    line.send({.body = pack(hello)}, deadline);
    const auto message = line.receive(kLargestText, deadline);
    if (!message) return std::nullopt;
    if (message->kind == Message::error) base::throw_packed_error(message->body);
    return line;
  } catch (const Unanswered& unanswered) {
    attempt.why = unanswered.why;
  } catch (const Wire::Gone&) {
    attempt.why = "it takes the call and hangs up";
  } catch (const Wire::Foreign& foreign) {
    if (spot.word.empty()) refuse_foreign(spot, foreign.said, options);
    attempt.why = "it is another service";
  }
  return std::nullopt;
}

// Rank 0 may have come last and wait for its own full time: this rank has its own to keep.
void wait_for_all(Wire& line, const StarOptions& options, Deadline deadline) {
  try {
    const auto message = line.receive(kLargestText, deadline);
    if (message && message->kind == Message::error) base::throw_packed_error(message->body);
    if (message) return;
  } catch (const Wire::Gone&) {
    throw left("rank 0", options);
  }
  throw Error(
      format("not all {} ranks came to join the group within {}", options.world, seconds(options.timeout)),
      place_of(options),
      "start all ranks at about the same time; rank 0's own error names those that did not come");
}

}  // namespace

std::unique_ptr<launch::Circle> hold_star(const Listener& listener, const std::string& word,
                                          const StarOptions& options) {
  return std::make_unique<Hub>(listener, word, options);
}

std::unique_ptr<launch::Circle> enter_star(const FindSpot& find, const StarOptions& options) {
  const auto deadline = Clock::now() + options.timeout;
  Attempt attempt;
  while (Clock::now() < deadline) {
    const auto spot = find();
    // what is left over of an earlier start may be a silent service by now
    const auto until = spot && !spot->word.empty() ? std::min(deadline, Clock::now() + kSeat) : deadline;
    auto line = spot ? try_once(*spot, options, until, attempt) : std::nullopt;
    if (line) {
      wait_for_all(*line, options, deadline + kGrace);
      return std::make_unique<Spoke>(std::move(*line), options);
    }
    std::this_thread::sleep_for(kRetry);
  }
  give_up(attempt, options);
}

}  // namespace lockstep::comm
