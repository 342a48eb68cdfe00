#pragma once
// Converts a file of texts to tokens, and caches them in a file for later runs.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/node_share.h"
#include "lockstep/data/rows/text_rows.h"
#include "lockstep/data/token_set.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::tasks {

/// The columns of a sample.
struct TextColumns {
  std::vector<std::string> texts = {};  // one or two, by name or index
  std::string label = {};               // empty = none
  bool numbers = false;                 // the label is a number, not a class
  std::string left_out = {};            // rows with this label are skipped
};

/// The content of a file.
struct TokenFile {
  Tokens tokens = {};                    // a class's number is its index in `names`
  std::vector<std::string> names = {};   // the classes, in order of appearance
  std::vector<int64_t> first_seen = {};  // the first line with each class
  int64_t left_out = 0;                  // number of skipped rows
  int64_t cut = 0;                       // number of samples longer than max_length
};

/// Converts everything except the tokens to JSON, and back.
nlohmann::json facts_of(const TokenFile& made);
TokenFile tokenised(Tokens tokens, const nlohmann::json& facts);

/// Throws InputError at file:line for a text that is not UTF-8, a missing label, or a file without rows.
TokenFile tokenise(const std::string& path, const data::TextLayout& layout, const TextColumns& columns,
                   const Tokenizer& tokenizer, int64_t max_length, int64_t threads);

/// The size and times of a file of texts. If they change, cached tokens are not used.
std::string state_of_file(const std::string& path);

/// A file with the tokens and `about`, an object that says what they were made from.
void write_tokens(const std::string& path, const TokenFile& made, nlohmann::json about, mode_t mode);
/// Calls check(), whose errors get a place and a hint. InputError if write_tokens() did not write the file,
/// or if its numbers do not fit together.
TokenFile read_tokens(const std::string& path, Arena& arena,
                      const std::function<void(const TokenFile& made, const nlohmann::json& about)>& check);

/// Reads what keep_tokens() wrote for `key`. Returns nothing if the file is missing, damaged or written for
/// another key, or if anyone except the user, root and the owner of the `texts` file may have written it.
std::optional<TokenFile> find_kept_tokens(const std::string& path, const std::string& key,
                                          const std::string& texts);

/// Writes the tokens, readable by the users who can read the `texts` file. Throws if it cannot write them, or
/// if other users could change them.
void keep_tokens(const std::string& path, const std::string& key, const std::string& texts,
                 const TokenFile& made);

}  // namespace lockstep::tasks
