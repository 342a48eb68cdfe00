#pragma once
// A tokenizer as a Hugging Face folder has it: vocab.txt, and what tokenizer_config.json or tokenizer.json
// say of it.

#include <string>
#include <vector>

#include "lockstep/text/char_rules.h"
#include "lockstep/text/vocabulary.h"

namespace lockstep::text {

struct TokenizerFolder {
  Vocabulary vocabulary;
  NormalizerOptions options;
  std::string unk = "[UNK]", cls = "[CLS]", sep = "[SEP]", pad = "[PAD]", mask = "[MASK]";
  std::vector<std::string> more_specials = {};  // beside those five
};

/// InputError where there is no vocabulary, a file is no JSON, or the tokenizer is another than BERT's.
TokenizerFolder read_folder(const std::string& path);

}  // namespace lockstep::text
