#include "lockstep/data/rows/text_rows.h"

#include <zlib.h>

#include "lockstep/base/error.h"
#include "peer.h"

namespace lockstep::data {
namespace {

using Rows = std::vector<std::vector<std::string>>;

struct TextRowsTest : testing::Test {
  test::TempFolder folder;

  Rows read(const std::string& name, const std::string& content, const std::vector<std::string>& columns = {},
            char delimiter = ',', bool header = true) {
    auto layout = layout_of(name, delimiter);
    layout.header = header;
    const auto rows = open_rows(folder.write(name, content), layout);
    rows->choose(columns.empty() ? rows->columns() : columns);
    Rows all;
    std::vector<std::string_view> fields;
    while (rows->next(fields)) {
      all.emplace_back(fields.begin(), fields.end());
      lines.push_back(rows->line());
    }
    return all;
  }
  void refused(const std::string& name, const std::string& content, const std::string& words,
               const std::string& place, const std::vector<std::string>& columns = {}) {
    try {
      read(name, content, columns);
      ADD_FAILURE() << "taken: " << content;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      EXPECT_EQ(error.where(), folder / (name + place)) << error.what();
      EXPECT_FALSE(error.hint().empty());
    }
  }
  std::vector<int64_t> lines;
};

TEST_F(TextRowsTest, ReadsTheSameRowsInEveryDress) {
  const Rows wanted = {{"so, so", "good"}, {"say \"hi\"", "bad"}};
  EXPECT_EQ(read("a.csv", "text,label\n\"so, so\",good\n\"say \"\"hi\"\"\",bad\n"), wanted);
  EXPECT_EQ(read("b.csv", "\xEF\xBB\xBFtext,label\r\n \"so, so\" , good\r\n\r\nsay \"hi\",bad")[1],
            wanted[1]);
  EXPECT_EQ(read("c.csv", "text;label\nso, so;good\nsay \"hi\";bad\n", {}, ';'), wanted);
  EXPECT_EQ(read("d.tsv", "text\tlabel\nso, so\tgood\nsay \"hi\"\tbad\n"), wanted);
  EXPECT_EQ(
      read("e.csv", "label\ttext\ngood\t\"so, so\"\nbad\t\"say \"\"hi\"\"\"\n", {"text", "label"}, '\t'),
      wanted);
  EXPECT_EQ(read("f.jsonl",
                 "{\"label\": \"good\", \"text\": \"so, so\", \"more\": {\"text\": [1]}}\n\n"
                 "{\"text\": \"say \\\"hi\\\"\", \"label\": \"bad\"}",
                 {"text", "label"}),
            wanted);
}

TEST_F(TextRowsTest, WritesNumbersAndTruthsOfJsonAsTexts) {
  EXPECT_EQ(read("a.jsonl", "{\"text\": \"\\u00e9\", \"label\": 1}\n{\"text\": 2.50, \"label\": true}\n"),
            (Rows{{"\u00e9", "1"}, {"2.50", "true"}}));
}

TEST_F(TextRowsTest, ReadsGzip) {
  const std::string text = "text,label\nhello,x\n";
  const auto path = folder / "a.csv.gz";
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  const auto rows = open_rows(path, layout_of(path, ','));
  rows->choose({"text"});
  std::vector<std::string_view> fields;
  EXPECT_TRUE(rows->next(fields));
  EXPECT_EQ(fields[0], "hello");
}

TEST_F(TextRowsTest, NamesTheLineThatIsWrong) {
  refused("a.csv", "", "the file is empty", "");
  refused("b.jsonl", "\n\n", "the file is empty", "");
  refused("a.csv", "text,label\nx,y\nz\n", "1 field, but the first line has 2", ":3");
  refused("a.csv", "text,label\nx,y,z\n", "3 fields, but the first line has 2", ":2");
  refused("a.tsv", "text\tlabel\nx\n", "1 field, but the first line has 2", ":2");
  refused("a.csv", "text,label\nx,y\n\"open,z\nmore\n", "a quote that begins here does not end", ":3");
  refused("a.csv", "text,label\n\"x\" y,z\n", "text between a closing quote", ":2");
  refused("a.csv", "text,label\nx,y\n", "there is no column 'lable'", "", {"text", "lable"});
  refused("a.csv", "text,text\nx,y\n", "two columns are called 'text'", "", {"text"});
  refused("a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"x\",}\n", "the line is not JSON", ":2");
  refused("a.jsonl", "{\"text\": \"x\"}\n{\"text\": 1e999}\n",
          "the line is not JSON: number overflow parsing '1e999'", ":2");
  refused("a.jsonl", "{\"text\": \"x\"}\n[1]\n", "the line is not a JSON object", ":2");
  refused("a.jsonl", "{\"text\": \"x\"}\n{\"txt\": \"x\"}\n", "the object has no 'text'", ":2");
  refused("a.jsonl", "{\"text\": \"x\"}\n{\"text\": null}\n", "'text' is null", ":2");
  refused("a.jsonl", "{\"text\": \"x\"}\n{\"text\": [\"x\"]}\n", "'text' is a list", ":2");
  refused("a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"\xFF\"}\n", "the line is not JSON", ":2");
  refused("a.jsonl", "{\"text\": \"x\"}\n" + std::string(100'000, '[') + "\n", "the line is not JSON", ":2");
}

TEST(LineRows, AreSamplesBlankOnesToo) {
  test::TempFolder folder;
  const auto rows = open_rows(folder.write("a", "one\n\ntwo\tx"), {.kind = TextLayout::Kind::lines});
  std::vector<std::string_view> fields;
  std::vector<std::string> all;
  while (rows->next(fields)) all.emplace_back(fields[0]);
  EXPECT_EQ(all, (std::vector<std::string>{"one", "", "two\tx"}));
  const auto pairs =
      open_rows(folder.write("b", "one\ttwo\nthree"), {.kind = TextLayout::Kind::lines, .texts_in_line = 2});
  EXPECT_TRUE(pairs->next(fields));
  EXPECT_EQ(fields[1], "two");
  EXPECT_THROW(pairs->next(fields), InputError);
}

}  // namespace
}  // namespace lockstep::data
