#pragma once
// vocab.txt: a token a line, its number the line's.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/word_cutter.h"

namespace lockstep::text {

/// The file's tokens. InputError where it cannot be read or is not UTF-8.
std::vector<std::string> read_vocabulary(const std::string& path);

class Vocabulary {
 public:
  /// Tokens by number; InputError, at `where`, for none at all or one that is there twice.
  Vocabulary(std::vector<std::string> tokens, std::string where);

  const std::vector<std::string>& tokens() const { return tokens_; }
  std::optional<int32_t> find(std::string_view token) const;
  /// Its number, which is the next one where it is new.
  int32_t add(const std::string& token);
  /// Where it was read.
  const std::string& where() const { return where_; }

 private:
  std::vector<std::string> tokens_;
  std::map<std::string, int32_t, std::less<>> numbers_;
  std::string where_;
};

// A tokenizer as a Hugging Face folder has it: vocab.txt, and tokenizer_config.json or tokenizer.json.

struct TokenizerFolder {
  Vocabulary vocabulary;
  NormalizerOptions options;
  std::string unk = "[UNK]", cls = "[CLS]", sep = "[SEP]", pad = "[PAD]", mask = "[MASK]";
  std::vector<std::string> more_specials = {};  // beside those five
};

/// InputError where there is no vocabulary, a file is no JSON, or the tokenizer is another than BERT's.
TokenizerFolder read_folder(const std::string& path);

}  // namespace lockstep::text
