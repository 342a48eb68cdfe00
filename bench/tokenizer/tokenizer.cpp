// bench_tokenizer FOLDER TEXTS ROUNDS: seconds of processor time that the tokenizer takes for the lines of a
// file, for run.py.
//
// Prints {"seconds": [of each round], "tokens": ..., "sha256": of all ids and offsets}, by which run.py sees
// that the package's are the same.
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

constexpr size_t kLargest = size_t{1} << 30;

template <class Values>
void add(base::Sha256& sum, const Values& values) {
  sum.add(values.data(), values.size() * sizeof(values[0]));
}

void measure(const char* folder, const char* texts, int rounds) {
  const Tokenizer tokenizer(folder);
  const auto lines = base::split(base::read_small_file(texts, kLargest, "the texts"), '\n');
  const EncodeOptions options{.truncation = Truncation::kNone};
  Encoding encoding;
  std::string seconds;
  base::Sha256 everything;
  size_t tokens = 0;
  for (int round = 0; round < rounds; ++round) {
    tokens = 0;
    const std::clock_t begin = std::clock();
    for (const auto& line : lines) {
      tokenizer.encode({line}, options, encoding);
      tokens += encoding.ids.size();
    }
    const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    seconds += format("{}{}", round ? ", " : "", took);
  }
  for (const auto& line : lines) {
    tokenizer.encode({line}, options, encoding);
    add(everything, encoding.ids);
    add(everything, encoding.offsets);
  }
  std::printf("{\"seconds\": [%s], \"tokens\": %zu, \"sha256\": \"%s\"}\n", seconds.c_str(), tokens,
              everything.hex().c_str());
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 4)
    return std::fprintf(stderr, "usage: bench_tokenizer FOLDER TEXTS ROUNDS\n"), lockstep::kBadInput;
  try {
    lockstep::measure(argv[1], argv[2], std::atoi(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", lockstep::describe(error).c_str());
    return lockstep::exit_status(error);
  }
}
