#include "lockstep/text/piece_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "lockstep/text/vocabulary.h"

namespace lockstep::text {
namespace {

struct Known {
  explicit Known(std::vector<std::string> tokens)
      : vocabulary(std::move(tokens), "here"), trie(vocabulary.tokens(), vocabulary.order()) {}
  Vocabulary vocabulary;
  PieceTrie trie;
};

std::vector<std::string> random_tokens(size_t count, std::mt19937& draw) {
  std::map<std::string, bool> tokens;
  while (tokens.size() < count) {
    std::string token = draw() % 2 ? "##" : "";
    for (size_t size = 1 + draw() % 6; size > 0; --size)
      token += static_cast<char>(draw() % 8 ? 'a' + draw() % 5 : draw() % 255 + 1);
    tokens[token] = true;
  }
  std::vector<std::string> list;
  for (const auto& [token, _] : tokens) list.push_back(token);
  std::shuffle(list.begin(), list.end(), draw);
  return list;
}

Piece by_trying(const Vocabulary& vocabulary, std::string_view rest, bool inside) {
  for (size_t size = rest.size(); size > 0; --size)
    if (const auto id = vocabulary.find((inside ? "##" : "") + std::string(rest.substr(0, size))))
      return {*id, size};
  return {};
}

TEST(PieceTrie, FindsWhatTryingEveryLengthFinds) {
  std::mt19937 draw(5);
  const Known known(random_tokens(5000, draw));
  int found = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string rest;
    for (size_t size = draw() % 8; size > 0; --size)
      rest += static_cast<char>(draw() % 8 ? 'a' + draw() % 5 : draw() % 255 + 1);
    const bool inside = draw() % 2;
    const Piece got = known.trie.longest(rest, inside), wanted = by_trying(known.vocabulary, rest, inside);
    ASSERT_EQ(std::pair(got.id, got.bytes), std::pair(wanted.id, wanted.bytes)) << rest;
    found += got.bytes > 0;
  }
  EXPECT_GT(found, 10000);
}

TEST(PieceTrie, ATokenThatNoWordCanHoldIsLeftOut) {
  const Known known({"a", std::string(1 << 20, 'x')});  // as deep as that nothing may recurse
  EXPECT_EQ(known.trie.longest(std::string(500, 'x'), false).bytes, 0U);
  EXPECT_EQ(known.trie.longest("a", false).id, 0);
}

}  // namespace
}  // namespace lockstep::text
