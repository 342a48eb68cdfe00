// Encodes what test_tokenizer.py sends, for it to compare with Hugging Face's package.
//   text_peer FOLDER
// A request is a line "MAX_LENGTH TRUNCATION SPECIAL_TOKENS FIRST SECOND", the last two the texts' sizes (-1
// for no second one), and then their bytes. The answer is a line: "ID:TYPE:SPECIAL:BEGIN:END ...", or "error
// WHAT".
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

std::string read_bytes(long size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  std::cin.read(bytes.data(), size);
  return bytes;
}

std::string shown(const Encoding& encoding) {
  std::string line;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const auto [begin, end] = encoding.offsets[i];
    for (const int64_t value : {int64_t{encoding.ids[i]}, int64_t{encoding.type_ids[i]},
                                int64_t{encoding.special_tokens_mask[i]}, int64_t{begin}, int64_t{end}})
      line += std::to_string(value) + ':';
    line.back() = ' ';
  }
  return line;
}

void answer(const Tokenizer& tokenizer, const std::string& request, Encoding& encoding) {
  size_t max_length = 0;
  int truncation = 0, special_tokens = 0;
  long first = 0, second = 0;
  std::istringstream(request) >> max_length >> truncation >> special_tokens >> first >> second;
  const std::string a = read_bytes(first), b = second < 0 ? "" : read_bytes(second);
  try {
    tokenizer.encode({a, second < 0 ? std::nullopt : std::optional<std::string_view>(b)},
                     {max_length, static_cast<Truncation>(truncation), special_tokens != 0}, encoding);
    std::cout << shown(encoding) << '\n';
  } catch (const InputError& error) {
    std::cout << "error " << error.what() << '\n';
  }
}

void serve(const char* folder) {
  const Tokenizer tokenizer(folder);
  Encoding encoding;
  for (std::string request; std::getline(std::cin, request);) answer(tokenizer, request, encoding);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  try {
    lockstep::serve(argc > 1 ? argv[1] : ".");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", lockstep::describe(error).c_str());
    return lockstep::exit_status(error);
  }
}
