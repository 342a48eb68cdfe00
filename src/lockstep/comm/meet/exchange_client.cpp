#include "lockstep/comm/meet/exchange_client.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/peer_user.h"
#include "lockstep/comm/meet/secret.h"
#include "lockstep/comm/meet/wire.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSeat{5000};  // rank 0 answers at once
constexpr size_t kQuoted = 40;

class ExchangeClient : public launch::TextExchange {
 public:
  ExchangeClient(Wire line, ExchangeOptions options) : line_(std::move(line)), options_(std::move(options)) {}

  std::vector<std::string> gather(const std::string& text) override {
    // where rank 0 has failed it has said why before it hung up
    if (!line_.send({.body = text}, Clock::now() + options_.timeout)) hear(Clock::now() + kTell);
    return {};
  }

  std::string broadcast(const std::string&) override {
    return hear(Clock::now() + options_.timeout + kRankZeroGrace);
  }

 private:
  std::string hear(Deadline deadline) {
    std::optional<WireMessage> message;
    try {
      message = line_.receive(kLargestText, deadline);
    } catch (const Wire::Foreign&) {
      throw left(0, options_);
    } catch (const Wire::Gone&) {
      throw left(0, options_);
    }
    if (!message) {
      throw Error(
          format("no word from rank 0 for {} while the ranks were joining", seconds(options_.timeout)),
          place_of(options_), "look at that process: it may be stopped, or busy with a slow disk")
          .of(Code::not_joined, {0});
    }
    if (message->kind == WireMessage::error) base::throw_packed_error(message->body);
    return message->body;
  }

  Wire line_;
  ExchangeOptions options_;
};

[[noreturn]] void refuse_foreign(const MeetingPlace& place, const std::string& said,
                                 const ExchangeOptions& options) {
  const auto line = said.substr(0, said.find_first_of("\r\n"));
  throw InputError(format("something else than this job answers at {} port {}{}", base::printable(place.host),
                          place.port, line.empty() ? "" : ": '" + base::printable(line, kQuoted) + "'"),
                   place_of(options), "choose another MASTER_PORT, the same on every rank")
      .of(Code::not_joined);
}

// What the last try came to, for the error at the end of all tries.
struct Attempt {
  MeetingPlace place;
  std::string why = "rank 0 has not said where it is";
  bool answered = false;
};

[[noreturn]] void give_up(const Attempt& last, const ExchangeOptions& options) {
  const std::string place = format("{} port {}", base::printable(last.place.host), last.place.port);
  if (last.answered) {
    throw Error(format("something answers at {}, but not as rank 0 of this job within {}: {}", place,
                       seconds(options.timeout), last.why),
                place_of(options),
                "is that port another service's, or is rank 0 stopped? Choose another MASTER_PORT if so")
        .of(Code::not_joined, {0});
  }
  throw Error(
      last.place.host.empty()
          ? format("rank 0 did not come within {}: {}", seconds(options.timeout), last.why)
          : format("nobody answered at {} within {} ({})", place, seconds(options.timeout), last.why),
      place_of(options),
      last.place.host.empty()
          ? "look in the log for an earlier error of rank 0; raise launch.join_timeout if it is only slow"
          : format("rank 0 did not come, or {} is not reached from this node",
                   base::printable(last.place.host)))
      .of(Code::not_joined, {0});
}

// What answers is nobody of this job: it is told at once where a person named the place, else looked for
// again.
struct Stranger {
  std::string what, hint;
};

// Who has gone since he answered is not known to the kernel any more: nothing of his is believed but why he
// went.
WireMessage last_error(Wire& line, const WireMessage& answer, const ExchangeOptions& options,
                       Deadline deadline) {
  try {
    for (std::optional<WireMessage> message = answer; message; message = line.receive(kLargestText, deadline))
      if (message->kind == WireMessage::error) return *message;
  } catch (const Wire::Gone&) {
    throw left(0, options);
  }
  throw left(0, options);
}

// Rank 0's answer to a hello. Who is not known by the kernel to be this user's has to prove that he belongs,
// and so has this rank.
std::optional<WireMessage> prove(const MeetingPlace& place, const ExchangeOptions& options,
                                 const Hello& hello, Wire& line, std::optional<WireMessage> answer,
                                 Deadline deadline) {
  const auto user = options.asks_kernel ? user_at_other_end(line.number()) : std::nullopt;
  if (user && *user != ::geteuid()) throw Stranger{"another user's process", "choose another MASTER_PORT"};
  const auto challenge = unpack_challenge(answer->body);
  if (!challenge) {
    if (user) return answer;
    if (options.asks_kernel && stays_on_this_machine(line.number()))
      return last_error(line, *answer, options, deadline);
    throw Stranger{"something that gives no proof", "choose another MASTER_PORT, the same on every rank"};
  }
  std::string secret = place.word;
  if (secret.empty()) secret = job_secret();
  if (!is_same_seal(challenge->proof, rank_zeros_proof(secret, hello, challenge->nonce)))
    throw Stranger{
        "something that does not know this job's secret",
        "where it is rank 0, set LOCKSTEP_SECRET to the same 16 letters or more on every rank; else choose "
        "another MASTER_PORT"};
  line.send({.body = callers_proof(secret, hello, challenge->nonce)}, deadline);
  return line.receive(kLargestText, deadline);
}

// A line on which rank 0 has answered, or nothing: then `attempt` says why.
std::optional<Wire> try_once(const MeetingPlace& place, const ExchangeOptions& options, Deadline deadline,
                             Attempt& attempt) {
  attempt.place = place;
  attempt.answered = false;
  try {
    Wire line = call(place.host, place.port, deadline);
    attempt.answered = true;
    attempt.why = "it takes the call and says nothing";
    const Hello hello{options.rank, options.world, mark_of(place.word),
                      fresh_word(), options.host,  std::to_string(::getpid())};
    line.send({.body = pack(hello)}, deadline);
    auto message = line.receive(kLargestText, deadline);
    if (message) message = prove(place, options, hello, line, std::move(message), deadline);
    if (!message) return std::nullopt;
    if (message->kind == WireMessage::error) base::throw_packed_error(message->body);
    return line;
  } catch (const Unanswered& unanswered) {
    attempt.why = unanswered.why;
  } catch (const Wire::Gone&) {
    attempt.why = "it takes the call and hangs up";
  } catch (const Stranger& stranger) {
    if (place.word.empty())
      throw InputError(
          format("{} answers at {} port {}", stranger.what, base::printable(place.host), place.port),
          place_of(options), stranger.hint)
          .of(Code::not_joined);
    attempt.why = "it is " + stranger.what;
  } catch (const Wire::Foreign& foreign) {
    if (place.word.empty()) refuse_foreign(place, foreign.said, options);
    attempt.why = "it is another service";
  }
  return std::nullopt;
}

// Rank 0 may have come last and wait for its own full time: this rank has its own to keep.
void wait_for_all(Wire& line, const ExchangeOptions& options, Deadline deadline) {
  try {
    const auto message = line.receive(kLargestText, deadline);
    if (message && message->kind == WireMessage::error) base::throw_packed_error(message->body);
    if (message) return;
  } catch (const Wire::Gone&) {
    throw left(0, options);
  }
  throw Error(
      format("not all {} ranks came to join the group within {}", options.world, seconds(options.timeout)),
      place_of(options),
      "start all ranks at about the same time; rank 0's own error names those that did not come")
      .of(Code::not_joined);
}

}  // namespace

std::unique_ptr<launch::TextExchange> join_exchange(const FindMeetingPlace& find,
                                                    const ExchangeOptions& options) {
  const auto deadline = Clock::now() + options.timeout;
  Attempt attempt;
  while (Clock::now() < deadline) {
    const auto place = find();
    // what is left over of an earlier start may be a silent service by now
    const auto until = place && !place->word.empty() ? std::min(deadline, Clock::now() + kSeat) : deadline;
    auto line = place ? try_once(*place, options, until, attempt) : std::nullopt;
    if (line) {
      wait_for_all(*line, options, deadline + kRankZeroGrace);
      return std::make_unique<ExchangeClient>(std::move(*line), options);
    }
    std::this_thread::sleep_for(kRetry);
  }
  give_up(attempt, options);
}

}  // namespace lockstep::comm
