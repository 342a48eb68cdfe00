#include "lockstep/text/tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/text/encoding.h"
#include "lockstep/text/vocabulary.h"
#include "lockstep/text/word_cutter.h"

namespace lockstep::text {
namespace {

// Tokens that are tokens wherever they stand in a text: [SEP] typed by a person is a [SEP].

class Specials {
 public:
  struct Found {
    size_t at, size;
    int32_t id;
  };

  void add(const std::string& token, int32_t id);
  /// The next one from `from` on; the longest where several begin at one place.
  std::optional<Found> next(std::string_view text, size_t from) const;

 private:
  struct Special {
    std::string token;
    int32_t id;
  };
  std::vector<Special> specials_;  // longer ones first
  std::string leads_;              // their first bytes
};

void Specials::add(const std::string& token, int32_t id) {
  const auto after = std::find_if(specials_.begin(), specials_.end(), [&](const Special& special) {
    return special.token.size() < token.size();
  });
  specials_.insert(after, {token, id});
  if (leads_.find(token[0]) == std::string::npos) leads_ += token[0];
}

std::optional<Specials::Found> Specials::next(std::string_view text, size_t from) const {
  const auto lead = [&](size_t at) {  // of one byte it is memchr, which is quick
    return leads_.size() == 1 ? text.find(leads_[0], at) : text.find_first_of(leads_, at);
  };
  for (size_t at = lead(from); at != std::string_view::npos; at = lead(at + 1)) {
    for (const Special& special : specials_)
      if (text.substr(at).starts_with(special.token)) return Found{at, special.token.size(), special.id};
  }
  return std::nullopt;
}

// How many tokens of each text stay where there are too many.

struct Lengths {
  size_t first = 0, second = 0;
};

// The longer one gives until both are of one length; then they share, and an odd token is the longer one's.
Lengths longest_first(Lengths lengths, size_t room) {
  const bool swapped = lengths.first > lengths.second;
  const size_t shorter = std::min(lengths.first, lengths.second);
  Lengths kept{shorter, shorter > room ? shorter : std::max(shorter, room - shorter)};
  if (kept.first + kept.second > room) kept = {room / 2, room / 2 + room % 2};
  if (swapped) std::swap(kept.first, kept.second);
  return kept;
}

// What the other one leaves, where it leaves anything.
size_t beside(size_t other, size_t room, const char* which) {
  if (other < room) return room - other;
  throw InputError(
      format("the {} text has {} tokens and stays whole, where {} are all that may be", which, other, room),
      "truncation of the other text alone",
      "allow more tokens, or cut the longer text first (longest_first)");
}

/// The lengths that leave `room` tokens at most. InputError where the text that may be cut is too short for
/// it, or is a second one that is not there.
Lengths truncated(Lengths lengths, bool pair, size_t room, Truncation truncation) {
  const size_t all = lengths.first + lengths.second;
  if (truncation == Truncation::kNone || all <= room) return lengths;
  if (room == 0) return {};
  switch (truncation) {
    case Truncation::kOnlyFirst:
      return {beside(lengths.second, room, "second"), lengths.second};
    case Truncation::kOnlySecond:
      if (!pair)
        throw InputError("there is no second text that could be cut", "a text alone",
                         "cut the first (only_first)");
      return {lengths.first, beside(lengths.first, room, "first")};
    default:
      return pair ? longest_first(lengths, room) : Lengths{room, 0};
  }
}

}  // namespace

}  // namespace lockstep::text

namespace lockstep {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

int32_t require_token(const text::Vocabulary& vocabulary, const std::string& token) {
  if (const auto id = vocabulary.find(token)) return *id;
  throw InputError(
      format("the vocabulary has no {}", base::printable(token)), vocabulary.where(),
      "give a BERT model's vocabulary, whose [UNK], [CLS], [SEP] and [PAD] are in it or are named in "
      "tokenizer_config.json");
}

void check_text(std::string_view text) {
  if (text.size() >= std::numeric_limits<uint32_t>::max())
    throw InputError("a text of 4 GiB or more cannot be encoded", format("{} bytes", text.size()),
                     "cut it into parts");
  const auto wrong = base::invalid_utf8(text);
  if (!wrong) return;
  throw InputError(format("a text is not UTF-8: byte 0x{:02X}", static_cast<unsigned char>(text[*wrong])),
                   format("byte {} of \"{}\"", *wrong, base::printable(text)),
                   "write it as UTF-8: iconv -f latin1 -t utf-8 FILE, say");
}

size_t room_for(const EncodeOptions& options, size_t added) {
  if (options.truncation == Truncation::kNone) return kNoLimit;
  if (options.max_length >= added) return options.max_length - added;
  throw InputError(
      format("{} tokens leave no room for a text: {} are added to it", options.max_length, added),
      "max_length", "allow more tokens");
}

// How many tokens of a text are worth having. Of two that are both cut, the longer one must be known.
size_t worth_having(bool second, bool pair, size_t room, Truncation truncation) {
  const bool cut_alone = truncation == Truncation::kLongestFirst
                             ? !pair
                             : truncation == (second ? Truncation::kOnlySecond : Truncation::kOnlyFirst);
  return cut_alone ? room : kNoLimit;
}

template <class Values>
void remove(Values& values, size_t from, size_t count) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(from);
  values.erase(at, at + static_cast<ptrdiff_t>(count));
}

void remove_tokens(Encoding& encoding, size_t from, size_t count) {
  remove(encoding.ids, from, count);
  remove(encoding.offsets, from, count);
}

void add_special(Encoding& encoding, int32_t id) {
  encoding.ids.push_back(id);
  encoding.offsets.push_back({});
}

}  // namespace

struct Tokenizer::Parts {
  explicit Parts(text::TokenizerFolder folder);

  size_t add(std::string_view text, size_t limit, Encoding& into) const;
  void encode(const TextPair& text, const EncodeOptions& options, Encoding& into) const;

  text::Vocabulary vocabulary;
  text::PieceTrie trie;
  text::CharRules rules;
  text::Specials specials;
  int32_t unk, cls, sep, pad;
};

Tokenizer::Parts::Parts(text::TokenizerFolder folder)
    : vocabulary(std::move(folder.vocabulary)),
      trie(vocabulary.tokens(), vocabulary.order()),
      rules(folder.options),
      unk(require_token(vocabulary, folder.unk)),
      cls(require_token(vocabulary, folder.cls)),
      sep(require_token(vocabulary, folder.sep)),
      pad(require_token(vocabulary, folder.pad)) {
  auto& more = folder.more_specials;
  more.insert(more.end(), {folder.unk, folder.cls, folder.sep, folder.pad, folder.mask});
  std::sort(more.begin(), more.end());
  more.erase(std::unique(more.begin(), more.end()), more.end());
  for (const auto& token : more)
    if (const auto id = vocabulary.find(token)) specials.add(token, *id);  // old vocabularies lack [MASK]
}

size_t Tokenizer::Parts::add(std::string_view text, size_t limit, Encoding& into) const {
  check_text(text);
  text::Pieces pieces(trie, unk, limit, into);
  text::WordCutter cutter(rules, pieces);
  for (size_t at = 0;;) {
    const auto special = specials.next(text, at);
    const size_t end = special ? special->at : text.size();
    if (!cutter.cut(text.substr(at, end - at)) || !special) return pieces.count();
    cutter.take_token(text.substr(end, special->size), special->id);
    at = end + special->size;
  }
}

void Tokenizer::Parts::encode(const TextPair& text, const EncodeOptions& options, Encoding& into) const {
  const bool pair = text.second.has_value();
  const size_t front = options.special_tokens ? 1 : 0;
  const size_t room = room_for(options, options.special_tokens ? (pair ? 3 : 2) : 0);
  into.ids.clear();
  into.offsets.clear();

  if (front) add_special(into, cls);
  text::Lengths all;
  all.first = add(text.first, worth_having(false, pair, room, options.truncation), into);
  if (front) add_special(into, sep);
  if (pair) all.second = add(*text.second, worth_having(true, pair, room, options.truncation), into);
  const auto kept = text::truncated(all, pair, room, options.truncation);
  const size_t behind_first = front + kept.first + front;
  remove_tokens(into, front + kept.first, all.first - kept.first);
  remove_tokens(into, behind_first + kept.second, all.second - kept.second);
  if (pair && front) add_special(into, sep);

  const size_t size = into.ids.size();
  into.type_ids.assign(size, 0);
  std::fill(into.type_ids.begin() + static_cast<ptrdiff_t>(behind_first), into.type_ids.end(), uint8_t{1});
  into.special_tokens_mask.assign(size, 0);
  if (!front) return;
  into.special_tokens_mask.front() = into.special_tokens_mask.back() = 1;
  into.special_tokens_mask[behind_first - 1] = 1;
}

Tokenizer::Tokenizer(const std::string& folder)
    : parts_(std::make_unique<Parts>(text::read_folder(folder))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

void Tokenizer::encode(const TextPair& text, const EncodeOptions& options, Encoding& into) const {
  parts_->encode(text, options, into);
}

Encoding Tokenizer::encode(const TextPair& text, const EncodeOptions& options) const {
  Encoding encoding;
  encode(text, options, encoding);
  return encoding;
}

size_t Tokenizer::size() const {
  return parts_->vocabulary.size();
}

const std::string& Tokenizer::token(int32_t id) const {
  return parts_->vocabulary.tokens().at(static_cast<size_t>(id));
}

std::optional<int32_t> Tokenizer::id(std::string_view token) const {
  return parts_->vocabulary.find(token);
}

int32_t Tokenizer::pad_id() const {
  return parts_->pad;
}

int32_t Tokenizer::unk_id() const {
  return parts_->unk;
}

}  // namespace lockstep
