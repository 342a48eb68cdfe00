#include "fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>

namespace lockstep::fuzz {
namespace {

constexpr size_t kLongest = 1 << 20;

// Numbers and pieces at which readers have failed elsewhere.
constexpr std::array<int64_t, 14> kNumbers = {
    0, -1, 1, 127, 255, 256, 32768, 65535, INT32_MAX, INT32_MIN, UINT32_MAX, 1LL << 40, INT64_MAX, INT64_MIN};
constexpr std::array kPieces = {
    "\"",      "{",        "}",        "[",    "]",          ":",       ",",   "\n",
    "\r\n",    "\t",       "null",     "true", "-1",         "1e999",   "NaN", "18446744073709551616",
    "\\u0000", "\xff\xfe", "%s",       "../",  "&a [*a,*a]", "${HOME}", "--",  "#",
    "'",       "=",        "!!binary "};

class Mutation {
 public:
  Mutation(std::string text, const std::vector<std::string>& seeds, std::mt19937& random)
      : text_(std::move(text)), seeds_(seeds), random_(random) {}

  std::string take() { return text_.substr(0, kLongest); }

  void change() {
    static const std::vector<void (Mutation::*)()> ways = {
        &Mutation::flip,      &Mutation::set_byte,    &Mutation::set_number,   &Mutation::insert_bytes,
        &Mutation::cut,       &Mutation::double_part, &Mutation::insert_piece, &Mutation::splice,
        &Mutation::end_early, &Mutation::nest};
    (this->*ways[below(ways.size())])();
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }
  size_t place() { return below(text_.size() + 1); }

  void flip() {
    if (!text_.empty()) text_[below(text_.size())] ^= static_cast<char>(1 << below(8));
  }
  void set_byte() {
    if (!text_.empty()) text_[below(text_.size())] = static_cast<char>(random_());
  }
  void set_number() {
    const auto value = kNumbers[below(kNumbers.size())];
    const auto width = size_t{1} << below(4);
    if (text_.size() < width) return;
    std::array<char, sizeof value> bytes;
    std::memcpy(bytes.data(), &value, sizeof value);
    if (below(2) == 0) std::reverse(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(width));
    std::copy_n(bytes.begin(), width,
                text_.begin() + static_cast<std::ptrdiff_t>(below(text_.size() - width + 1)));
  }
  void insert_bytes() {
    std::string bytes(1 + below(8), '\0');
    for (char& c : bytes) c = static_cast<char>(random_());
    text_.insert(place(), bytes);
  }
  void cut() {
    const auto from = place();
    text_.erase(from, below(text_.size() - from + 1));
  }
  void double_part() {
    const auto from = place();
    text_.insert(place(), text_.substr(from, below(256)));
  }
  void insert_piece() { text_.insert(place(), kPieces[below(kPieces.size())]); }
  void splice() {
    const auto& other = seeds_[below(seeds_.size())];
    const auto from = below(other.size() + 1);
    text_ = text_.substr(0, place()) + other.substr(from);
  }
  void end_early() { text_.resize(place()); }
  void nest() { text_.insert(place(), std::string(1 + below(3000), "[{("[below(3)])); }

  std::string text_;
  const std::vector<std::string>& seeds_;
  std::mt19937& random_;
};

}  // namespace

std::string mutated(const std::vector<std::string>& seeds, std::mt19937& random) {
  Mutation mutation(seeds[random() % seeds.size()], seeds, random);
  const auto changes = 1 + random() % 8;
  for (uint32_t i = 0; i < changes; ++i) mutation.change();
  return mutation.take();
}

}  // namespace lockstep::fuzz
