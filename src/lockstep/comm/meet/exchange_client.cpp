#include "lockstep/comm/meet/exchange_client.h"

#include <algorithm>
#include <thread>

#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/meeting_file.h"
#include "lockstep/comm/meet/wire.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAnswerTime{5000};  // rank 0 answers at once
constexpr size_t kQuoted = 40;

class ExchangeClient : public launch::TextExchange {
 public:
  ExchangeClient(Wire line, ExchangeOptions options) : line_(std::move(line)), options_(std::move(options)) {}

  std::vector<std::string> gather(const std::string& text) override {
    // a rank 0 that failed has sent its error before it closed the connection
    if (!line_.send({.body = text}, Clock::now() + options_.timeout)) receive(Clock::now() + kErrorTime);
    return {};
  }

  std::string broadcast(const std::string&) override {
    return receive(Clock::now() + options_.timeout + kRankZeroGrace);
  }

 private:
  std::string receive(Deadline deadline) {
    std::optional<WireMessage> message;
    try {
      message = line_.receive(kLargestText, deadline);
    } catch (const Wire::Foreign&) {
      throw left(0, options_);
    } catch (const Wire::Closed&) {
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

std::string name_of(const MeetingPlace& place) {
  return base::printable(place.host.empty() ? place.socket : format("{} port {}", place.host, place.port));
}

[[noreturn]] void refuse_foreign(const MeetingPlace& place, const std::string& said,
                                 const ExchangeOptions& options) {
  const auto line = said.substr(0, said.find_first_of("\r\n"));
  throw InputError(format("something else than this job answers at {}{}", name_of(place),
                          line.empty() ? "" : ": '" + base::printable(line, kQuoted) + "'"),
                   place_of(options), "choose another MASTER_PORT, the same on every rank")
      .of(Code::not_joined);
}

// The result of the last attempt, for the error after all attempts.
struct Attempt {
  MeetingPlace place;
  std::string why = "rank 0 has not said where it is";
  bool answered = false;
};

[[noreturn]] void give_up(const Attempt& last, const ExchangeOptions& options) {
  const auto& place = last.place;
  const auto time = seconds(options.timeout);
  std::string what = format("rank 0 did not come within {}: {}", time, last.why);
  std::string hint = "look in the log for an earlier error of rank 0; ";
  if (last.answered) {
    what = format("something answers at {}, but not as rank 0 of this job within {}: {}", name_of(place),
                  time, last.why);
    hint = "is that port another service's, or is rank 0 stopped? Choose another MASTER_PORT if so";
  } else if (!place.host.empty()) {
    what = format("nobody answered at {} within {} ({})", name_of(place), time, last.why);
    hint = format("rank 0 did not come, or {} is not reached from this node", base::printable(place.host));
  } else if (place.socket.empty()) {
    hint += "raise launch.join_timeout if it is only slow";
  } else {
    hint += "ranks on one machine need the same TMPDIR, MASTER_ADDR and MASTER_PORT";
  }
  throw Error(what, place_of(options), hint).of(Code::not_joined, {0});
}

Wire reach_rank_zero(const MeetingPlace& place, Deadline deadline) {
  if (auto socket = call_socket(place.socket)) return Wire(std::move(*socket));
  if (place.host.empty()) throw Unanswered{format("nothing listens at {}", base::printable(place.socket))};
  return call(place.host, place.port, deadline);
}

// A connection on which rank 0 has answered, or nothing: then `attempt` says why.
std::optional<Wire> try_once(const MeetingPlace& place, const ExchangeOptions& options, Deadline deadline,
                             Attempt& attempt) {
  attempt.place = place;
  attempt.answered = false;
  try {
    Wire line = reach_rank_zero(place, deadline);
    attempt.answered = true;
    attempt.why = "it accepts the connection and does not answer";
    line.send({.body = pack(own_hello(options, place.word))}, deadline);
    const auto message = line.receive(kLargestText, deadline);
    if (!message) return std::nullopt;
    if (message->kind == WireMessage::error) base::throw_packed_error(message->body);
    return line;
  } catch (const Unanswered& unanswered) {
    attempt.why = unanswered.why;
  } catch (const Wire::Closed&) {
    attempt.why = "it accepts the connection and closes it";
  } catch (const Wire::Foreign& foreign) {
    if (place.word.empty()) refuse_foreign(place, foreign.said, options);
    attempt.why = "it is another service";
  }
  return std::nullopt;
}

// Rank 0 may have started last and wait for its own full timeout; this rank keeps its own.
void wait_for_all(Wire& line, const ExchangeOptions& options, Deadline deadline) {
  try {
    const auto message = line.receive(kLargestText, deadline);
    if (message && message->kind == WireMessage::error) base::throw_packed_error(message->body);
    if (message) return;
  } catch (const Wire::Closed&) {
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
    // what is left over from an earlier start may be a silent service by now
    const auto until =
        place && !place->word.empty() ? std::min(deadline, Clock::now() + kAnswerTime) : deadline;
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
