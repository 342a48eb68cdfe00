#include "lockstep/text/word_cutter.h"

#include <algorithm>
#include <utility>

#include "lockstep/text/unicode.h"

namespace lockstep::text {

bool WordCutter::cut(std::string_view part) {
  const char* at = part.data();
  const char* const end = at + part.size();
  while (more_ && at < end) {
    const ByteKind kind = rules_.kind(*at);
    if (kind == ByteKind::kLetter || kind == ByteKind::kOther) {
      at = cut_ascii(at, end);
      continue;
    }
    if (kind == ByteKind::kSign) more_ = pieces_.add_ascii({at, 1}, at_);
    ++at, ++at_;
  }
  return more_;
}

void WordCutter::take_token(std::string_view part, int32_t id) {
  const auto chars = static_cast<uint32_t>(count_chars(part));
  pieces_.add_token(id, {at_, at_ + chars});
  at_ += chars;
}

const char* WordCutter::cut_ascii(const char* begin, const char* end) {
  const char* const stop =
      std::find_if(begin, end, [&](char byte) { return rules_.kind(byte) != ByteKind::kLetter; });
  if (stop < end && rules_.kind(*stop) == ByteKind::kOther) return cut_any(begin, end);
  const auto size = static_cast<size_t>(stop - begin);
  const char* letters = begin;
  if (rules_.lowers() && size <= kLongestWord) {
    std::transform(begin, stop, word_.bytes.begin(), [&](char byte) { return rules_.lowered(byte); });
    letters = word_.bytes.data();
  }
  more_ = pieces_.add_ascii({letters, size}, at_);
  at_ += static_cast<uint32_t>(size);
  return stop;
}

const char* WordCutter::cut_any(const char* begin, const char* end) {
  const char* at = begin;
  while (more_ && at < end) {
    const ByteKind kind = rules_.kind(*at);
    if (kind == ByteKind::kSpace || kind == ByteKind::kSign) break;
    const auto [value, bytes] = decode(at);
    if (kind == ByteKind::kLetter) {
      end_run();
      push(static_cast<unsigned char>(rules_.lowered(*at)), at_);
    } else {
      take_wide(value);
    }
    at += bytes;
    ++at_;
  }
  end_run();
  end_word();
  return at;
}

void WordCutter::take_wide(char32_t c) {
  const int flags = char_flags()[c] & rules_.heeded;
  if (flags & kRemoved) return;
  const bool apart = flags & (kSpace | kIdeograph);
  if (apart) end_run(), end_word();
  if (flags & kSpace) return;
  if (flags & (kDecomposes | kCombines | kMark)) {
    take_decomposed(c);
  } else {
    end_run();
    emit(c, at_);
  }
  if (apart) end_run(), end_word();
}

void WordCutter::take_decomposed(char32_t c) {
  if (!(char_flags()[c] & kDecomposes)) return take_element(c, true);
  std::array<char32_t, 4> parts;
  const size_t count = decompose(c, parts);
  for (size_t i = 0; i < count; ++i) take_element(parts[i], i == 0);
}

void WordCutter::take_element(char32_t c, bool leads) {
  const int flags = char_flags()[c];
  if (flags & kCombines) {
    run_.push_back({combining_class(c), c, leads, at_, run_.size()});
    run_stays_ |= !(flags & kMark);
    return;
  }
  end_run();
  if (!(flags & kMark)) emit(c, at_);
}

void WordCutter::end_run() {
  if (run_.empty()) return;
  if (run_stays_) emit_run();
  run_.clear();
  run_stays_ = false;
}

// Hugging Face's alignments do not move with the characters that are sorted: the n-th that leads is said to
// come from the n-th character that there was, and one that does not, from where the one before it came.
void WordCutter::emit_run() {
  std::vector<uint32_t> places;
  for (const Combining& element : run_)
    if (element.leads) places.push_back(element.from);
  std::sort(run_.begin(), run_.end(), [](const Combining& a, const Combining& b) {
    return std::pair(a.number, a.order) < std::pair(b.number, b.order);
  });
  uint32_t from = run_.front().from;
  auto place = places.begin();
  for (const Combining& element : run_) {
    if (element.leads) from = *place++;
    if (!(char_flags()[element.value] & kMark)) emit(element.value, from);
  }
}

void WordCutter::emit(char32_t c, uint32_t from) {
  const int flags = char_flags()[c] & rules_.heeded;
  if (flags & kPunctuation) {
    end_word();
    push(c, from);
    return end_word();
  }
  if (!(flags & kCapital)) return push(c, from);
  if (c != kCapitalIWithDot) return push(lower(c), from);
  push('i', from);
  push(U'\u0307', from);
}

void WordCutter::push(char32_t c, uint32_t from) {
  if (word_.chars++ == 0) word_.first = from;
  word_.last = from;
  if (word_.chars > kLongestWord) return;
  const size_t bytes = encode(c, word_.bytes.data() + word_.size);
  std::fill_n(word_.from.begin() + word_.size, bytes, from);
  word_.size += bytes;
}

void WordCutter::end_word() {
  if (word_.chars == 0) return;
  if (more_) more_ = pieces_.add(word_);
  word_.size = word_.chars = 0;
}

}  // namespace lockstep::text
