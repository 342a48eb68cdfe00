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
  try {
    tokenizer.encode({"a caf\xE9", "it"});
    ADD_FAILURE() << "taken";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "a text is not UTF-8: byte 0xE9");
    EXPECT_EQ(error.where(), "byte 5 of \"a caf\\xe9\"");
    EXPECT_NE(error.hint().find("iconv"), std::string::npos);
  }
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
