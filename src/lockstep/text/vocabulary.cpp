#include "lockstep/text/vocabulary.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/text/unicode.h"

namespace lockstep::text {
namespace {

constexpr size_t kMostVocabularyBytes = size_t{256} << 20;
constexpr const char* kVocabularyHint = "copy the model's vocab.txt again, as it was published";

// Hugging Face's reader takes every kind of blank away from a line's end.
std::string_view without_blanks(std::string_view line) {
  while (!line.empty()) {
    size_t last = line.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(line[last]) & 0xC0) == 0x80) --last;
    if (!(char_flags()[decode(line.data() + last).value] & kSpace)) break;
    line = line.substr(0, last);
  }
  return line;
}

void refuse_other_encodings(const std::string& text, const std::string& path) {
  const auto at = base::invalid_utf8(text);
  if (!at) return;
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(*at), '\n');
  throw InputError(
      format("the vocabulary is not UTF-8: byte 0x{:02X}", static_cast<unsigned char>(text[*at])),
      format("{}:{}", path, line), kVocabularyHint);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(without_blanks(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::vector<std::string> read_vocabulary(const std::string& path) {
  const std::string text = base::read_small_file(path, kMostVocabularyBytes, "the vocabulary");
  refuse_other_encodings(text, path);
  return lines_of(text);
}

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::string where)
    : tokens_(std::move(tokens)), order_(tokens_.size()), where_(std::move(where)) {
  if (tokens_.empty()) throw InputError("the vocabulary is empty", where_, kVocabularyHint);
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(), [this](int32_t a, int32_t b) {
    const int less = text(a).compare(text(b));
    return less != 0 ? less < 0 : a < b;
  });
  refuse_doubles();
}

void Vocabulary::refuse_doubles() const {
  const auto twice = std::adjacent_find(order_.begin(), order_.end(),
                                        [this](int32_t a, int32_t b) { return text(a) == text(b); });
  if (twice == order_.end()) return;
  throw InputError(
      format("the vocabulary has {} twice, as the tokens {} and {}",
             text(*twice).empty() ? "an empty line" : "\"" + base::printable(text(*twice)) + "\"", *twice,
             *(twice + 1)),
      where_, kVocabularyHint);
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto at = std::lower_bound(order_.begin(), order_.end(), token,
                                   [this](int32_t id, std::string_view wanted) { return text(id) < wanted; });
  if (at == order_.end() || text(*at) != token) return std::nullopt;
  return *at;
}

}  // namespace lockstep::text
