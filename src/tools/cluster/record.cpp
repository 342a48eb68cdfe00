#include "tools/cluster/record.h"

#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"

namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 4 << 20;

// the word up to the next blank; the text keeps the rest
std::string next_word(std::string& text) {
  const auto blank = text.find(' ');
  const auto word = text.substr(0, blank);
  text = blank == std::string::npos ? "" : text.substr(blank + 1);
  return word;
}

std::optional<int> parse_status(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

void begin(Recorded& recorded) {
  recorded.restarts += recorded.began ? 1 : 0;
  recorded.began = true;
  recorded.again = false;
  recorded.status.reset();
}

void take(Recorded& recorded, std::string line) {
  const auto fact = next_word(line), job = next_word(line);
  if (recorded.job.empty()) recorded.job = job;
  if (job != recorded.job) return;  // one that was replaced, and is started again
  if (fact == "begin") {
    begin(recorded);
  } else if (fact == "file") {
    recorded.run_file = line;
  } else if (fact == "again") {
    recorded.again = true;
  } else if (fact == "next") {
    recorded.job = line;
    recorded.replaced = recorded.again = true;
  } else if (fact == "end") {
    recorded.status = parse_status(next_word(line));
    if (!line.empty()) recorded.folder = line;
  }
}

// A line that is still being written does not count.
std::string text_of(const fs::path& path) {
  std::error_code none;
  if (!fs::exists(path, none)) return "";
  try {
    return base::read_small_file(path.string(), kMostBytes, "the job's record");
  } catch (const InputError&) {
    return "";  // removed in between
  }
}

}  // namespace

Recorded read_record(const std::string& text) {
  Recorded recorded;
  for (size_t from = 0, end = 0; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    take(recorded, text.substr(from, end - from));
  return recorded;
}

Recorded read_record_file(const fs::path& path) {
  return read_record(text_of(path));
}

fs::path folder_of(const Recorded& recorded) {
  if (!recorded.folder.empty()) return recorded.folder;
  auto said = recorded.run_file.empty() ? "" : text_of(recorded.run_file);
  return said.substr(0, said.find('\n'));  // a relative one is from the folder of submission, where we are
}

}  // namespace lockstep::cluster
