// Reads files that no program wrote: seeds with a few bytes or parts changed, one after the other, until time
// is up. What is no Error of ours, a crash or a long wait leaves its input in the folder.
//
//   lockstep_fuzz list
//   lockstep_fuzz PARSER SECONDS SEEDS FOLDER SEED    SECONDS may be a number of inputs: 300x
#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz/parsers.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/data/pixels/image_file.h"

namespace lockstep::fuzz {
namespace {

// ---- a file as it might be: a seed with a few bytes changed ----

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

/// One of the seeds, changed in one to eight places; the same for the same random numbers.
std::string mutated(const std::vector<std::string>& seeds, std::mt19937& random) {
  Mutation mutation(seeds[random() % seeds.size()], seeds, random);
  const auto changes = 1 + random() % 8;
  for (uint32_t i = 0; i < changes; ++i) mutation.change();
  return mutation.take();
}

// ---- the readers' runs ----

using Clock = std::chrono::steady_clock;
using Path = std::filesystem::path;

constexpr int kMostSeconds = 20;  // of the processor's, for one input
constexpr rlim_t kMostMemory = rlim_t{8} << 30;

std::string content_of(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const Path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<std::string> seeds_of(const Parser& parser, const Path& seeds, const Path& folder) {
  std::vector<std::string> texts;
  if (parser.write_seed) {
    parser.write_seed(folder);
    texts.push_back(content_of(folder / parser.file));
  }
  std::vector<Path> files;
  if (std::filesystem::is_directory(seeds / parser.name))
    for (const auto& entry : std::filesystem::directory_iterator(seeds / parser.name))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) texts.push_back(content_of(file));
  if (texts.empty()) throw InputError("there is no seed", (seeds / parser.name).string(), "put a file there");
  return texts;
}

// Ends the process where an input takes long, however busy the machine is.
void begin_patience() {
  const itimerval time{.it_interval = {}, .it_value = {.tv_sec = kMostSeconds, .tv_usec = 0}};
  ::setitimer(ITIMER_PROF, &time, nullptr);
}

// A sanitizer reserves terabytes that it does not use.
void bound_memory() {
#ifndef __SANITIZE_ADDRESS__
  const rlimit memory{.rlim_cur = kMostMemory, .rlim_max = kMostMemory};
  ::setrlimit(RLIMIT_AS, &memory);
#endif
}

// Was it taken for a good one? What is neither that nor refused in our words ends the process.
bool reads(const Parser& parser, const Path& folder, const std::string& input) {
  begin_patience();
  try {
    parser.read(folder, input);
    return true;
  } catch (const Error&) {
    return false;
  } catch (const data::BadImage&) {
    return false;
  } catch (const data::NoDecoder&) {
    return false;
  }
}

struct Budget {
  explicit Budget(const std::string& text)
      : inputs(text.ends_with('x') ? std::stoll(text) : -1),
        end(Clock::now() + std::chrono::seconds(inputs < 0 ? std::stoll(text) : 0)) {}
  bool is_left(int64_t done) const { return inputs < 0 ? Clock::now() < end : done < inputs; }
  int64_t inputs;
  Clock::time_point end;
};

int run(const Parser& parser, const Budget& budget, const Path& seeds, const Path& folder, uint32_t seed) {
  const auto texts = seeds_of(parser, seeds, folder);
  std::mt19937 random(seed);
  int64_t done = 0, read = 0;
  for (; budget.is_left(done); ++done) {
    // the seeds themselves first
    const auto number = static_cast<size_t>(done);
    const auto input = number < texts.size() ? texts[number] : mutated(texts, random);
    write(folder / parser.file, input);
    try {
      read += reads(parser, folder, input);
    } catch (const std::exception& error) {
      std::printf("%s", format("{}: input {} met an error that is none of ours: {}\n", parser.name, done,
                               error.what())
                            .c_str());
      return 1;
    }
  }
  std::printf("%s", format("{}: {} inputs, {} of them read\n", parser.name, done, read).c_str());
  return read > 0 ? 0 : 3;  // seeds that are refused try nothing
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int argc, char** argv) {
  using namespace lockstep::fuzz;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{"list"}) {
    for (const auto& parser : parsers()) std::printf("%s\n", parser.name.c_str());
    return 0;
  }
  if (words.size() != 5) return 2;
  for (const auto& parser : parsers()) {
    if (parser.name != words[0]) continue;
    bound_memory();
    return run(parser, Budget(words[1]), words[2], words[3], static_cast<uint32_t>(std::stoul(words[4])));
  }
  return 2;
}
