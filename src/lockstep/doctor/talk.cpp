#include "lockstep/doctor/talk.h"

#include <algorithm>
#include <list>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/pack.h"
#include "lockstep/comm/meet/peers.h"
#include "lockstep/launch/mpi.h"

namespace lockstep::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Beside those of mpi_join.cpp, on the communicator of the runtime.
constexpr int kUp = 21, kDown = 22;
constexpr auto kPoll = std::chrono::microseconds(100);
constexpr Milliseconds kGrace{2000};  // rank 0 waits for the full time before it speaks
constexpr const char* kNothing = "-";
constexpr const char* kText = "+";

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

std::string pack(const std::vector<std::optional<std::string>>& texts) {
  std::vector<std::string> parts;
  for (const auto& text : texts) parts.push_back(text ? kText + *text : kNothing);
  return base::pack_texts(parts);
}

std::vector<std::optional<std::string>> unpack(const std::string& packed) {
  std::vector<std::optional<std::string>> texts;
  for (const auto& part : base::unpack_texts(packed))
    texts.push_back(part == kNothing ? std::nullopt : std::optional(part.substr(1)));
  return texts;
}

std::string with_turn(int turn, const std::string& text) {
  return base::pack_texts({std::to_string(turn), text});
}

}  // namespace

std::vector<int> Heard::silent() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank]) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

Heard Talk::round(const std::string& text, Milliseconds patience) {
  patience = std::min(patience, longest_);
  if (world() == 1) return {{text}};
  if (!runtime_.has_mpi()) return without_mpi(text);
  Heard heard;
  try {
    heard.texts = over_mpi(text, patience);
  } catch (const std::exception& error) {
    heard = {only(text), error.what()};
  }
  const auto silent = heard.silent();
  note(silent);
  if (heard.why.empty() && !silent.empty())
    heard.why = format("no word from {} for {} s", comm::rank_list(silent), patience.count() / 1000.0);
  return heard;
}

void Talk::note(const std::vector<int>& silent) {
  if (silent.empty()) return;
  broken_ = true;
  alone_ = alone_ || silent.front() == 0;
}

Talk::Texts Talk::only(const std::string& text) const {
  Texts texts(static_cast<size_t>(world()));
  texts[static_cast<size_t>(rank())] = text;
  return texts;
}

// A circle ends with the first rank that is not heard.
Heard Talk::without_mpi(const std::string& text) {
  if (broken_) return {only(text), "the ranks have lost touch"};
  try {
    const auto all = runtime_.all_gather(text);
    return {Texts(all.begin(), all.end())};
  } catch (const std::exception& error) {
    Heard heard{only(text), error.what()};
    // it has told the others who is silent, unless it is rank 0 itself
    if (rank() != 0 && heard.why.find("rank 0") == std::string::npos) heard.texts[0] = "";
    note(heard.silent());
    return heard;
  }
}

Talk::Texts Talk::over_mpi(const std::string& text, Milliseconds patience) {
  ++turn_;
  if (rank() != 0) {
    outbox().send(with_turn(turn_, text), 0, kUp, runtime_.mpi().world());
    auto texts = answer(patience + kGrace);
    return texts.empty() ? only(text) : texts;
  }
  auto texts = collect(text, patience);
  tell(texts, kGrace);
  return texts;
}

Talk::Texts Talk::collect(const std::string& text, Milliseconds patience) {
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

void Talk::tell(const Texts& texts, Milliseconds patience) {
  const auto packed = with_turn(turn_, pack(texts));
  for (int to = 1; to < world(); ++to)
    if (texts[static_cast<size_t>(to)]) outbox().send(packed, to, kDown, runtime_.mpi().world());
  flush(patience);
}

Talk::Texts Talk::answer(Milliseconds patience) {
  for (const auto end = Clock::now() + patience; Clock::now() < end;) {
    outbox().is_empty();
    const auto message = arrived(runtime_.mpi().world(), kDown);
    if (!message) {
      std::this_thread::sleep_for(kPoll);
      continue;
    }
    const auto parts = base::unpack_texts(message->text);
    if (std::stoi(parts.at(0)) == turn_) return unpack(parts.at(1));
  }
  return {};
}

}  // namespace lockstep::doctor
