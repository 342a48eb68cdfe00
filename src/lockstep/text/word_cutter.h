#pragma once
// BERT's normaliser and pre-tokeniser in one pass: a text's words, each cut into pieces as soon as it ends.
//
// Hugging Face's code takes its steps over the whole text, one after the other: control characters out,
// blanks around ideographs, canonical decomposition (NFD), accents out, lower case; then words between
// blanks, and each punctuation mark a word. What a step does to a character depends on its neighbours in one
// place alone: NFD sorts the combining characters behind a base character by their class.

#include <string_view>
#include <vector>

#include "lockstep/text/char_rules.h"
#include "lockstep/text/pieces.h"

namespace lockstep::text {

class WordCutter {
 public:
  WordCutter(const CharRules& rules, Pieces& pieces) : rules_(rules), pieces_(pieces) {}

  /// The words of the text's next part, known to be UTF-8; false once the pieces are enough.
  bool cut(std::string_view part);
  /// The next part is a token.
  void take_token(std::string_view part, int32_t id);

 private:
  struct Combining {
    uint8_t number;  // its class
    char32_t value;
    bool leads;     // the first of what its character became
    uint32_t from;  // its character
    size_t order;   // among the run's
  };

  // each takes a word or more from `begin` on, and returns where it stopped
  const char* cut_ascii(const char* begin, const char* end);
  const char* cut_any(const char* begin, const char* end);

  void take_wide(char32_t c);
  void take_element(char32_t c, bool leads);
  void take_decomposed(char32_t c);
  void emit(char32_t c, uint32_t from);
  void push(char32_t c, uint32_t from);
  void emit_run();
  void end_run();
  void end_word();

  const CharRules& rules_;
  Pieces& pieces_;
  uint32_t at_ = 0;  // the number of the next character
  bool more_ = true;
  Word word_;
  std::vector<Combining> run_;  // what combines with one base character
  bool run_stays_ = false;      // not all of it is accents
};

}  // namespace lockstep::text
