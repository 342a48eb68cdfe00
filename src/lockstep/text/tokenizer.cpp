#include "lockstep/text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/text/vocabulary.h"
#include "lockstep/text/word_cutter.h"

namespace lockstep {
namespace {

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
      format("the {} text, which is not truncated, has {} tokens, and {} are allowed", which, other, room),
      "truncation of only the other text",
      "allow more tokens, or truncate the longer text first (longest_first)");
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
        throw InputError("there is no second text to truncate", "a text alone",
                         "truncate the first (only_first)");
      return {lengths.first, beside(lengths.first, room, "first")};
    default:
      return pair ? longest_first(lengths, room) : Lengths{room, 0};
  }
}

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
                     "split it into parts");
  const auto wrong = base::invalid_utf8(text);
  if (!wrong) return;
  throw InputError(format("a text is not UTF-8: byte 0x{:02X}", static_cast<unsigned char>(text[*wrong])),
                   format("byte {} of \"{}\"", *wrong, base::printable(text)),
                   "convert it to UTF-8, for example with iconv -f latin1 -t utf-8 FILE");
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

void remove_tokens(Encoding& encoding, size_t from, size_t count) {
  const auto first = static_cast<ptrdiff_t>(from), last = static_cast<ptrdiff_t>(from + count);
  encoding.ids.erase(encoding.ids.begin() + first, encoding.ids.begin() + last);
  encoding.offsets.erase(encoding.offsets.begin() + first, encoding.offsets.begin() + last);
}

void add_special(Encoding& encoding, int32_t id) {
  encoding.ids.push_back(id);
  encoding.offsets.push_back({});
}

}  // namespace

struct Tokenizer::Parts {
  text::Vocabulary vocabulary;
  text::WordCutter cutter;
  int32_t unk, cls, sep, pad;
};

Tokenizer::Tokenizer(const std::string& folder) {
  auto read = text::read_folder(folder);
  auto& vocabulary = read.vocabulary;
  const auto unk = require_token(vocabulary, read.unk), cls = require_token(vocabulary, read.cls),
             sep = require_token(vocabulary, read.sep), pad = require_token(vocabulary, read.pad);
  std::set<std::string> names(read.more_specials.begin(), read.more_specials.end());
  names.insert({read.unk, read.cls, read.sep, read.pad, read.mask});
  text::SpecialTokens specials;
  for (const auto& name : names)
    if (const auto id = vocabulary.find(name)) specials.emplace_back(name, *id);  // old ones lack [MASK]
  text::WordCutter cutter(vocabulary.tokens(), std::move(specials), unk, read.options);
  parts_.reset(new Parts{std::move(vocabulary), std::move(cutter), unk, cls, sep, pad});
}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

void Tokenizer::encode(const TextPair& text, const EncodeOptions& options, Encoding& into) const {
  const bool pair = text.second.has_value();
  const size_t front = options.special_tokens ? 1 : 0;
  const size_t room = room_for(options, options.special_tokens ? (pair ? 3 : 2) : 0);
  const auto add = [&](std::string_view part, bool second) {
    check_text(part);
    return parts_->cutter.cut(part, worth_having(second, pair, room, options.truncation), into);
  };
  into.ids.clear();
  into.offsets.clear();

  if (front) add_special(into, parts_->cls);
  Lengths all;
  all.first = add(text.first, false);
  if (front) add_special(into, parts_->sep);
  if (pair) all.second = add(*text.second, true);
  const auto kept = truncated(all, pair, room, options.truncation);
  const size_t behind_first = front + kept.first + front;
  remove_tokens(into, front + kept.first, all.first - kept.first);
  remove_tokens(into, behind_first + kept.second, all.second - kept.second);
  if (pair && front) add_special(into, parts_->sep);

  const size_t size = into.ids.size();
  into.type_ids.assign(size, 0);
  std::fill(into.type_ids.begin() + static_cast<ptrdiff_t>(behind_first), into.type_ids.end(), uint8_t{1});
  into.special_tokens_mask.assign(size, 0);
  if (!front) return;
  into.special_tokens_mask.front() = into.special_tokens_mask.back() = 1;
  into.special_tokens_mask[behind_first - 1] = 1;
}

Encoding Tokenizer::encode(const TextPair& text, const EncodeOptions& options) const {
  Encoding encoding;
  encode(text, options, encoding);
  return encoding;
}

size_t Tokenizer::size() const {
  return parts_->vocabulary.tokens().size();
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
