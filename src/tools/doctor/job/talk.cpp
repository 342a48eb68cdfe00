#include "tools/doctor/job/talk.h"

#include <algorithm>
#include <list>
#include <thread>

#include "lockstep/base/fault.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/launch/process/mpi.h"

namespace lockstep::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Beside those of mpi_join.cpp, on the communicator of the runtime.
constexpr int kUp = 21, kDown = 22;
constexpr auto kPoll = std::chrono::microseconds(100);
constexpr Milliseconds kGrace{2000};  // rank 0 waits for the full time before it speaks

struct Message {
  int from = 0;
  std::string text;
};

std::optional<Message> arrived(mpi::Comm comm, int tag) {
  int there = 0, bytes = 0;
  mpi::Status status;
  mpi::Message message = mpi::Message::null;
  launch::check_mpi(mpi::calls().improbe(mpi::kAnySource, tag, comm, &there, &message, &status),
                    "MPI_Improbe");
  if (!there) return std::nullopt;
  launch::check_mpi(mpi::calls().get_count(&status, mpi::Type::character, &bytes), "MPI_Get_count");
  Message found{status.source, std::string(static_cast<size_t>(bytes), '\0')};
  launch::check_mpi(
      mpi::calls().mrecv(found.text.data(), bytes, mpi::Type::character, &message, mpi::kIgnore),
      "MPI_Mrecv");
  return found;
}

// To a rank that is stopped nothing arrives, and the text has to stay where it is: for good.
class Outbox {
 public:
  void send(const std::string& text, int to, int tag, mpi::Comm comm) {
    auto& letter = letters_.emplace_back(Letter{text, mpi::Request::null});
    launch::check_mpi(mpi::calls().isend(letter.text.data(), static_cast<int>(letter.text.size()),
                                         mpi::Type::character, to, tag, comm, &letter.request),
                      "MPI_Isend");
  }

  /// True where all have gone.
  bool is_empty() {
    letters_.remove_if([](Letter& letter) {
      int done = 0;
      mpi::calls().test(&letter.request, &done, mpi::kIgnore);
      return done != 0;
    });
    return letters_.empty();
  }

 private:
  struct Letter {
    std::string text;
    mpi::Request request;
  };
  std::list<Letter> letters_;
};

Outbox& outbox() {
  static auto* box = new Outbox;
  return *box;
}

void flush(Milliseconds patience) {
  const auto end = Clock::now() + patience;
  while (!outbox().is_empty() && Clock::now() < end) std::this_thread::sleep_for(kPoll);
}

std::string pack_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (const int rank : ranks) parts.push_back(std::to_string(rank));
  return base::pack_texts(parts);
}

std::vector<int> unpack_ranks(const std::string& packed) {
  std::vector<int> ranks;
  for (const auto& part : base::unpack_texts(packed)) ranks.push_back(std::stoi(part));
  return ranks;
}

std::vector<int> silent_in(const Texts& texts) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank]) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

const std::string& of_rank(const std::vector<std::string>& replies, int rank) {
  return replies.size() == 1 ? replies.front() : replies.at(static_cast<size_t>(rank));
}

std::string with_turn(int turn, const std::string& text) {
  return base::pack_texts({std::to_string(turn), text});
}

}  // namespace

Heard Talk::round(const std::string& text, Milliseconds patience, const Reply& reply) {
  patience = std::min(patience, longest_);
  std::string failed;
  const Reply safe = [&](const Texts& texts) -> std::vector<std::string> {
    try {
      if (reply) return reply(texts);
    } catch (const std::exception& error) {
      failed = error.what();
    }
    return {""};
  };
  Heard heard;
  try {
    if (world() == 1)
      heard = {.texts = {text}, .reply = safe({text}).front()};
    else
      heard = runtime_.has_mpi() ? over_mpi(text, patience, safe) : without_mpi(text, safe);
  } catch (const std::exception& error) {
    heard = {.texts = only(text), .why = error.what()};
  }
  if (heard.why.empty() && !heard.silent.empty())
    heard.why = format("no word from {} for {} s", comm::rank_list(heard.silent), patience.count() / 1000.0);
  note(heard);
  if (heard.why.empty()) heard.why = failed;
  return heard;
}

void Talk::note(const Heard& heard) {
  if (heard.why.empty()) return;
  broken_ = true;
  alone_ = alone_ || (!heard.silent.empty() && heard.silent.front() == 0);
}

Texts Talk::only(const std::string& text) const {
  Texts texts(static_cast<size_t>(world()));
  texts[static_cast<size_t>(rank())] = text;
  return texts;
}

// A circle ends with the first rank that is not heard; rank 0 has told the others who that is.
Heard Talk::without_mpi(const std::string& text, const Reply& reply) {
  Heard heard{.texts = only(text)};
  if (broken_) return heard.why = "the ranks have lost touch", heard;
  try {
    const auto all = runtime_.gather(text);
    if (rank() == 0) heard.texts = Texts(all.begin(), all.end());
    const auto own = rank() == 0 ? base::pack_texts(reply(heard.texts)) : "";
    heard.reply = of_rank(base::unpack_texts(runtime_.broadcast(own)), rank());
  } catch (const std::exception& error) {
    heard.why = error.what();
    heard.silent = fault_of(error).ranks;
  }
  return heard;
}

Heard Talk::over_mpi(const std::string& text, Milliseconds patience, const Reply& reply) {
  ++turn_;
  if (rank() != 0) {
    outbox().send(with_turn(turn_, text), 0, kUp, runtime_.mpi().world());
    return answer(text, patience + kGrace);
  }
  Heard heard{.texts = collect(text, patience)};
  heard.silent = silent_in(heard.texts);
  const auto replies = reply(heard.texts);
  heard.reply = of_rank(replies, 0);
  tell(heard, replies, kGrace);
  return heard;
}

Texts Talk::collect(const std::string& text, Milliseconds patience) {
  auto texts = only(text);
  lost_.resize(texts.size());
  for (auto& [from, early] : early_[turn_]) texts[static_cast<size_t>(from)] = std::move(early);
  const auto awaited = [&] {
    for (size_t i = 0; i < texts.size(); ++i)
      if (!texts[i] && !lost_[i]) return true;
    return false;
  };
  for (const auto end = Clock::now() + patience; awaited() && Clock::now() < end;) {
    const auto message = arrived(runtime_.mpi().world(), kUp);
    if (!message) {
      std::this_thread::sleep_for(kPoll);
      continue;
    }
    const auto parts = base::unpack_texts(message->text);
    const int turn = std::stoi(parts.at(0));
    if (turn == turn_) texts[static_cast<size_t>(message->from)] = parts.at(1);
    if (turn > turn_) early_[turn][message->from] = parts.at(1);
  }
  early_.erase(turn_);
  for (size_t i = 0; i < texts.size(); ++i) lost_[i] = !texts[i];
  return texts;
}

void Talk::tell(const Heard& heard, const std::vector<std::string>& replies, Milliseconds patience) {
  const auto silent = pack_ranks(heard.silent);
  for (int to = 1; to < world(); ++to) {
    if (!heard.texts[static_cast<size_t>(to)]) continue;
    const auto letter = base::pack_texts({silent, of_rank(replies, to)});
    outbox().send(with_turn(turn_, letter), to, kDown, runtime_.mpi().world());
  }
  flush(patience);
}

Heard Talk::answer(const std::string& text, Milliseconds patience) {
  Heard heard{.texts = only(text)};
  for (const auto end = Clock::now() + patience; Clock::now() < end;) {
    outbox().is_empty();
    const auto message = arrived(runtime_.mpi().world(), kDown);
    if (!message) {
      std::this_thread::sleep_for(kPoll);
      continue;
    }
    const auto parts = base::unpack_texts(message->text);
    if (std::stoi(parts.at(0)) != turn_) continue;
    const auto letter = base::unpack_texts(parts.at(1));
    heard.silent = unpack_ranks(letter.at(0));
    heard.reply = letter.at(1);
    return heard;
  }
  heard.silent = {0};
  return heard;
}

}  // namespace lockstep::doctor
