// Reads files that no program wrote: seeds with a few bytes or parts changed, one after the other, until time
// is up. What is no Error of ours, a crash or a long wait leaves its input in the folder.
//
//   lockstep_fuzz list
//   lockstep_fuzz PARSER SECONDS SEEDS FOLDER SEED    SECONDS may be a number of inputs: 300x
#include <sys/resource.h>
#include <sys/time.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz/mutate.h"
#include "fuzz/parsers.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/data/pixels/image_file.h"

namespace lockstep::fuzz {
namespace {

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
