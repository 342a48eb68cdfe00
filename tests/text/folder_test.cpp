#include "lockstep/text/vocabulary.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lockstep/text/tokenizer.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep::text {
namespace {

constexpr const char* kShortVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n";

struct FolderTest : testing::Test {
  test::TempFolder folder;

  void refused(const std::string& words, const std::string& place = {}) {
    const auto error = test::error_from([&] { Tokenizer tokenizer(folder.path().string()); });
    EXPECT_TRUE(test::has(error.what(), words));
    EXPECT_TRUE(test::has(error.where(), folder.path().string() + place));
    EXPECT_FALSE(error.hint().empty()) << error.what();
  }
  void config_is_refused(const std::string& config, const std::string& words) {
    folder.write("vocab.txt", kShortVocabulary);
    folder.write("tokenizer_config.json", config);
    refused(words, "/tokenizer_config.json");
  }
  void tokenizer_is_refused(const std::string& json, const std::string& words) {
    folder.write("vocab.txt", kShortVocabulary);
    folder.write("tokenizer.json", json);
    refused(words, "/tokenizer.json");
  }
  NormalizerOptions options(const std::string& config, const std::string& normalizer) {
    folder.write("vocab.txt", kShortVocabulary);
    folder.write("tokenizer_config.json", config);
    folder.write("tokenizer.json", R"({"normalizer": )" + normalizer + "}");
    return read_folder(folder.path().string()).options;
  }
};

TEST_F(FolderTest, WithoutAVocabularyIsRefused) {
  refused("the folder has no vocabulary: no vocab.txt");
  EXPECT_THROW(Tokenizer(folder / "nowhere"), InputError);
  folder.write("file", "");
  EXPECT_THROW(Tokenizer(folder / "file"), InputError);
}

TEST_F(FolderTest, AVocabularyMustHaveWhatATextNeeds) {
  folder.write("vocab.txt", "");
  refused("the vocabulary is empty");
  for (const char* missing : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) {
    std::string lines = kShortVocabulary;
    folder.write("vocab.txt", lines.replace(lines.find(missing), 5, "other"));
    refused(std::string("the vocabulary has no ") + missing);
  }
}

TEST_F(FolderTest, ATokenThatIsThereTwiceIsNamedWithItsNumbers) {
  folder.write("vocab.txt", std::string(kShortVocabulary) + "b\na \n");
  refused("the vocabulary holds \"a\" twice, as tokens 4 and 6");
  folder.write("vocab.txt", std::string(kShortVocabulary) + "\n\n");
  refused("the vocabulary holds an empty line twice, as tokens 5 and 6");
}

TEST_F(FolderTest, AVocabularyThatIsNotUtf8IsRefusedWithItsLine) {
  folder.write("vocab.txt", std::string(kShortVocabulary) + "caf\xE9\n");
  refused("the vocabulary is not UTF-8: byte 0xE9", "/vocab.txt:6");
}

TEST_F(FolderTest, TheConfigCountsBeforeTokenizerJson) {
  constexpr const char* kCased =
      R"({"type": "BertNormalizer", "lowercase": false, "strip_accents": true, "handle_chinese_chars": false})";
  const auto silent = options("{}", kCased);
  EXPECT_FALSE(silent.do_lower_case);
  EXPECT_EQ(silent.strip_accents, true);
  EXPECT_FALSE(silent.tokenize_chinese_chars);
  const auto said =
      options(R"({"do_lower_case": true, "strip_accents": null, "tokenize_chinese_chars": true})", kCased);
  EXPECT_TRUE(said.do_lower_case);
  EXPECT_TRUE(said.tokenize_chinese_chars);
  const auto neither = options("{}", "null");
  EXPECT_TRUE(neither.do_lower_case && neither.tokenize_chinese_chars && neither.clean_text &&
              !neither.strip_accents);
}

TEST_F(FolderTest, OddConfigsAreRefused) {
  config_is_refused("{", "tokenizer_config.json is not a JSON object");
  config_is_refused(R"({"unk_token": )" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}",
                    "nested too deeply");
  config_is_refused("[]", "tokenizer_config.json is not a JSON object");
  config_is_refused(R"({"do_lower_case": "yes"})", "do_lower_case is neither true nor false");
  config_is_refused(R"({"unk_token": 7})", "unk_token is not a text");
  config_is_refused(R"({"sep_token": ""})", "sep_token is not a text");
  config_is_refused(R"({"additional_special_tokens": [3]})", "is not a token");
  config_is_refused(R"({"added_tokens_decoder": {"5": {"content": "x", "lstrip": true}}})", "has lstrip");
}

TEST_F(FolderTest, OtherTokenizersAreRefused) {
  tokenizer_is_refused(R"({"model": {"type": "Unigram"}})", "type is \"Unigram\", but must be \"WordPiece\"");
  tokenizer_is_refused(R"({"normalizer": {"type": "NFC"}})", "type is \"NFC\"");
  tokenizer_is_refused(R"({"model": {"continuing_subword_prefix": "@@"}})", "continuing_subword_prefix");
  tokenizer_is_refused(R"({"model": {"max_input_chars_per_word": 50}})", "max_input_chars_per_word is 50");
  tokenizer_is_refused(R"({"model": []})", "model is not an object");
  tokenizer_is_refused(R"({"added_tokens": [{"id": 9, "content": "x"}]})", "has the number 9");
}

TEST_F(FolderTest, AVocabularyInTokenizerJsonMustCountFromZero) {
  folder.write("tokenizer.json", R"({"model": {"vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 3, "[SEP]": 3}}})");
  refused("each number from 0 to 3 must belong to one token", "/tokenizer.json");
  folder.write("tokenizer.json", R"({"model": {"vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 3, "[SEP]": 2}}})");
  EXPECT_EQ(Tokenizer(folder.path().string()).id("[CLS]"), 3);
}

}  // namespace
}  // namespace lockstep::text

namespace lockstep {
namespace {

constexpr const char* kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\ncafe\ncaf\xC3\xA9\nCafe\n,"
    "\n\xE6\xBC\xA2\nit\na\n";

// tests/e2e/test_tokenizer.py compares tokens and offsets with Hugging Face's.
struct TokenizerTest : testing::Test {
  test::TempFolder folder;

  Tokenizer made(const std::string& config = "{}") {
    folder.write("vocab.txt", kVocabulary);
    folder.write("tokenizer_config.json", config);
    return Tokenizer(folder.path().string());
  }
};

TEST_F(TokenizerTest, ATextThatIsNotUtf8IsRefusedWithItsByte) {
  const auto tokenizer = made();
  const auto error = test::error_from([&] { tokenizer.encode({"a caf\xE9", "it"}); });
  EXPECT_STREQ(error.what(), "a text is not UTF-8: byte 0xE9");
  EXPECT_EQ(error.where(), "byte 5 of \"a caf\\xe9\"");
  EXPECT_TRUE(test::has(error.hint(), "iconv"));
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
