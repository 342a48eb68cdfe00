#include "lockstep/text/tokenizer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lockstep/base/error.h"
#include "temp_folder.h"

namespace lockstep {
namespace {

constexpr const char* kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\ncafe\ncaf\xC3\xA9\nCafe\n,"
    "\n\xE6\xBC\xA2\nit\na\n";

struct TokenizerTest : testing::Test {
  test::TempFolder folder;

  Tokenizer made(const std::string& config = "{}") {
    folder.write("vocab.txt", kVocabulary);
    folder.write("tokenizer_config.json", config);
    return Tokenizer(folder.path().string());
  }
};

std::string words(const Tokenizer& tokenizer, const Encoding& encoding) {
  std::string text;
  for (const int32_t id : encoding.ids) text += (text.empty() ? "" : " ") + tokenizer.token(id);
  return text;
}

std::string words(const Tokenizer& tokenizer, const TextPair& text, const EncodeOptions& options = {}) {
  return words(tokenizer, tokenizer.encode(text, options));
}

using Offsets = std::vector<TokenOffsets>;

TEST_F(TokenizerTest, CutsAWordIntoTheLongestPieces) {
  const auto tokenizer = made();
  const auto encoding = tokenizer.encode({"unaffable, it"});
  EXPECT_EQ(words(tokenizer, encoding), "[CLS] un ##aff ##able , it [SEP]");
  EXPECT_EQ(encoding.offsets, (Offsets{{0, 0}, {0, 2}, {2, 5}, {5, 9}, {9, 10}, {11, 13}, {0, 0}}));
  EXPECT_EQ(encoding.special_tokens_mask, (std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 1}));
}

TEST_F(TokenizerTest, AWordThatCannotBeCutToItsEndIsUnknown) {
  const auto tokenizer = made();
  const auto encoding = tokenizer.encode({"unaffx it"});
  EXPECT_EQ(words(tokenizer, encoding), "[CLS] [UNK] it [SEP]");
  EXPECT_EQ(encoding.offsets[1], (TokenOffsets{0, 6}));
}

TEST_F(TokenizerTest, CaseAndAccentsGoWhereTheFolderSaysSo) {
  constexpr const char* kText = "Cafe\xCC\x81 caf\xC3\xA9";
  EXPECT_EQ(words(made(), {kText}), "[CLS] cafe cafe [SEP]");
  EXPECT_EQ(words(made(R"({"do_lower_case": false})"), {kText}), "[CLS] [UNK] caf\xC3\xA9 [SEP]");
  EXPECT_EQ(words(made(R"({"do_lower_case": false, "strip_accents": true})"), {kText}),
            "[CLS] Cafe cafe [SEP]");
  EXPECT_EQ(words(made(R"({"strip_accents": false})"), {kText}), "[CLS] [UNK] caf\xC3\xA9 [SEP]");
}

TEST_F(TokenizerTest, ASpecialTokenInTheTextIsOne) {
  const auto tokenizer = made();
  const auto encoding = tokenizer.encode({"a[SEP]a [sep]"});
  EXPECT_EQ(words(tokenizer, encoding), "[CLS] a [SEP] a [UNK] [UNK] [UNK] [SEP]");
  EXPECT_EQ(encoding.offsets[2], (TokenOffsets{1, 6}));
  EXPECT_EQ(encoding.special_tokens_mask[2], 0);  // nobody added it
}

TEST_F(TokenizerTest, TheSecondTextIsOfTypeOne) {
  const auto tokenizer = made();
  const auto encoding = tokenizer.encode({"a it", "it"});
  EXPECT_EQ(words(tokenizer, encoding), "[CLS] a it [SEP] it [SEP]");
  EXPECT_EQ(encoding.type_ids, (std::vector<uint8_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(words(tokenizer, {"a it", "it"}, {.special_tokens = false}), "a it it");
}

TEST_F(TokenizerTest, TheLongerTextIsCutFirst) {
  const auto tokenizer = made();
  EXPECT_EQ(words(tokenizer, {"a a a a", "it"}, {.max_length = 6}), "[CLS] a a [SEP] it [SEP]");
  EXPECT_EQ(words(tokenizer, {"a a a a", "it it it"}, {.max_length = 6}), "[CLS] a a [SEP] it [SEP]");
  EXPECT_EQ(words(tokenizer, {"a a a", "it it it"}, {.max_length = 6}), "[CLS] a [SEP] it it [SEP]");
  EXPECT_EQ(words(tokenizer, {"a a a a"}, {.max_length = 4}), "[CLS] a a [SEP]");
}

TEST_F(TokenizerTest, OneTextAloneCanBeCut) {
  const auto tokenizer = made();
  const TextPair text{"a a a", "it it it"};
  EXPECT_EQ(words(tokenizer, text, {.max_length = 7, .truncation = Truncation::kOnlyFirst}),
            "[CLS] a [SEP] it it it [SEP]");
  EXPECT_EQ(words(tokenizer, text, {.max_length = 7, .truncation = Truncation::kOnlySecond}),
            "[CLS] a a a [SEP] it [SEP]");
  EXPECT_EQ(words(tokenizer, text, {.max_length = 3, .truncation = Truncation::kNone}),
            "[CLS] a a a [SEP] it it it [SEP]");
}

TEST_F(TokenizerTest, WhatCannotBeCutIsRefused) {
  const auto tokenizer = made();
  const TextPair pair{"a a a", "it it it"};
  EXPECT_THROW(tokenizer.encode(pair, {.max_length = 6, .truncation = Truncation::kOnlyFirst}), InputError);
  EXPECT_THROW(tokenizer.encode(pair, {.max_length = 6, .truncation = Truncation::kOnlySecond}), InputError);
  EXPECT_THROW(tokenizer.encode({"a a a"}, {.max_length = 4, .truncation = Truncation::kOnlySecond}),
               InputError);
  EXPECT_THROW(tokenizer.encode(pair, {.max_length = 2}), InputError);
}

TEST_F(TokenizerTest, ATextThatIsNotUtf8IsRefusedWithItsByte) {
  const auto tokenizer = made();
  try {
    tokenizer.encode({"a caf\xE9", "it"});
    ADD_FAILURE() << "taken";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "a text is not UTF-8: byte 0xE9");
    EXPECT_EQ(error.where(), "byte 5 of \"a caf\\xe9\"");
    EXPECT_NE(error.hint().find("iconv"), std::string::npos);
  }
}

TEST_F(TokenizerTest, ABatchIsPaddedToItsLongest) {
  const auto tokenizer = made();
  const std::vector<TextPair> texts = {{"a"}, {"a", "it"}, {""}};
  TokenBatch batch;
  for (int again = 0; again < 2; ++again) {  // a batch is used again
    tokenizer.encode_batch(texts, {}, batch);
    EXPECT_EQ(batch.rows, 3U);
    EXPECT_EQ(batch.width, 5U);
    EXPECT_EQ(batch.ids, (std::vector<int64_t>{2, 14, 3, 0, 0, 2, 14, 3, 13, 3, 2, 3, 0, 0, 0}));
    EXPECT_EQ(batch.type_ids, (std::vector<int64_t>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0}));
    EXPECT_EQ(batch.attention_mask, (std::vector<int64_t>{1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}));
  }
  tokenizer.encode_batch({}, {}, batch);
  EXPECT_EQ(batch.rows + batch.ids.size(), 0U);
}

TEST_F(TokenizerTest, ThreadsShareOne) {
  const auto tokenizer = made();
  const auto wanted = tokenizer.encode({"unaffable caf\xC3\xA9", "\xE6\xBC\xA2 a"});
  std::atomic<int> others = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      Encoding mine;
      for (int k = 0; k < 500; ++k) {
        tokenizer.encode({"unaffable caf\xC3\xA9", "\xE6\xBC\xA2 a"}, {}, mine);
        others += mine.ids != wanted.ids || mine.offsets != wanted.offsets;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace lockstep
