#pragma once
// A file of texts to tokens, by several threads; the order is the file's.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/node_share.h"
#include "lockstep/data/rows/text_rows.h"
#include "lockstep/data/token_set.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::tasks {

/// What a file's rows are made of.
struct TextColumns {
  std::vector<std::string> texts = {};  // one or two, by name or index
  std::string label = {};               // empty = there is none
  bool numbers = false;                 // the label is a number, not a class
  std::string left_out = {};            // rows of this label are no samples
};

/// What a file became.
struct Tokenised {
  Tokens tokens = {};                    // a class's number is its place in `names`
  std::vector<std::string> names = {};   // of the classes, as they came first
  std::vector<int64_t> first_seen = {};  // the line of each
  int64_t left_out = 0;                  // rows
  int64_t cut = 0;                       // samples that were longer
};

struct TokeniseOptions {
  int64_t max_length = 128;
  int64_t threads = 1;
};

/// The columns that are empty are filled in: the label is data::find_label()'s, the texts are the others.
/// InputError where those are more than two. Gives the label's place.
size_t complete(TextColumns& columns, const std::vector<std::string>& in_file, bool named,
                const std::string& path);

/// InputError, at file:line, for what is no text, no UTF-8, no label; for no rows at all.
Tokenised tokenise(const std::string& path, const data::TextLayout& layout, const TextColumns& columns,
                   const Tokenizer& tokenizer, const TokeniseOptions& options);

/// The set as share_on_node() and a kept file carry it.
SharedSet packed(const Tokenised& made);
Tokenised unpacked(const SharedSet& set);

/// A list of numbers as one text, and back.
std::string packed_numbers(const std::vector<int64_t>& numbers);
std::vector<int64_t> numbers_in(const std::string& packed);
/// Would unpacked() give tokens whose places and numbers are those of one another? A file may hold anything.
bool is_sound(const SharedSet& set);

}  // namespace lockstep::tasks
