#pragma once
// A file of texts as tokens, in the file's order, and the file in which a run keeps them for the next one.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/rows/text_rows.h"
#include "lockstep/data/token_set.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::tasks {

/// The columns that make a sample.
struct TextColumns {
  std::vector<std::string> texts = {};  // one or two, by name or index
  std::string label = {};               // empty = none
  bool numbers = false;                 // the label is a number, not a class
  std::string left_out = {};            // rows with this label are skipped
};

/// The content of a file.
struct TokenFile {
  Tokens tokens = {};                    // a class's number is its place in `names`
  std::vector<std::string> names = {};   // of the classes, in order of appearance
  std::vector<int64_t> first_seen = {};  // the line of each
  int64_t left_out = 0;                  // rows
  int64_t cut = 0;                       // samples that were longer than max_length
};

/// Everything but the tokens, and back.
nlohmann::json facts_of(const TokenFile& made);
TokenFile tokenised(Tokens tokens, const nlohmann::json& facts);

/// InputError, at file:line, for a text that is not UTF-8, a missing label, or a file without rows.
TokenFile tokenise(const std::string& path, const data::TextLayout& layout, const TextColumns& columns,
                   const Tokenizer& tokenizer, int64_t max_length, int64_t threads);

/// The size and times of a file of texts. Another state means other tokens.
std::string state_of_file(const std::string& path);

/// What keep_tokens() wrote for `key`. Nothing if the file is missing, damaged or made for another key, or if
/// it could come from someone else than the user, root or the owner of the `texts` file.
std::optional<TokenFile> find_kept_tokens(const std::string& path, const std::string& key,
                                          const std::string& texts);

/// Whoever may read the `texts` file may read the tokens. Throws if the tokens cannot be written, or if other
/// users could change them.
void keep_tokens(const std::string& path, const std::string& key, const std::string& texts,
                 const TokenFile& made);

}  // namespace lockstep::tasks
