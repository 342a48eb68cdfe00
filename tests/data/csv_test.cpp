#include "lockstep/data/csv.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/data/node_share.h"
#include "lockstep/data/rows/text_rows.h"
#include "peer.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep {
namespace {

struct Csv : testing::Test {
  test::TempFolder folder;
  Arena heap;

  CsvTable read(const std::string& content, CsvOptions options = {}) {
    return read_csv(folder.write("t.csv", content), options, heap);
  }
  void refused(const std::string& content, const std::string& words, const std::string& place,
               CsvOptions options = {}) {
    const auto error = test::error_from([&] { read(content, options); });
    EXPECT_TRUE(test::has(error.what(), words));
    EXPECT_EQ(error.where(), folder / ("t.csv" + place)) << error.what();
  }
};

std::vector<float> floats(const at::Tensor& t) {
  return {t.const_data_ptr<float>(), t.const_data_ptr<float>() + t.numel()};
}
std::vector<int64_t> longs(const at::Tensor& t) {
  return {t.const_data_ptr<int64_t>(), t.const_data_ptr<int64_t>() + t.numel()};
}

TEST_F(Csv, ReadsTheSameTableInEveryDress) {
  const std::string plain = "a,b,class\n1,2.5,0\n-3,4e2,1\n";
  for (const auto& text :
       {plain, std::string("\xEF\xBB\xBF") + plain, std::string("a,b,class\r\n1,2.5,0\r\n-3,4e2,1\r\n"),
        std::string("\"a\",b,\"class\"\n\"1\",2.5,\"0\"\n -3 ,+4e2, \"1\" "),
        std::string("a,b,class\n\n1,2.5,0\n  \n-3,400,1.0\n\n")}) {
    const auto table = read(text);
    EXPECT_EQ(floats(table.features), (std::vector<float>{1, 2.5, -3, 400})) << text;
    EXPECT_EQ(longs(table.labels), (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(table.class_names, (std::vector<std::string>{"0", "1"}));
  }
}

TEST_F(Csv, TakesTheColumnsThatAreNamed) {
  const auto table =
      read("x;kind;y;z\n1;no;2;3\n4;yes;5;6\n", {.delimiter = ';', .label = "kind", .features = {"z", "0"}});
  EXPECT_EQ(floats(table.features), (std::vector<float>{3, 1, 6, 4}));
  EXPECT_EQ(table.class_names, (std::vector<std::string>{"no", "yes"}));
  const auto bare = read("7,1,2\n8,3,4\n", {.header = false, .label = "0"});
  EXPECT_EQ(floats(bare.features), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(bare.class_names, (std::vector<std::string>{"7", "8"}));
}

TEST_F(Csv, OrdersClassesByNumberOrByName) {
  EXPECT_EQ(longs(read("a,c\n0,10\n0,9\n0,10\n").labels), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(longs(read("a,c\n0,cat\n0,ant\n").labels), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(longs(read("a,c\n0,dog\n", {.class_names = {"ant", "dog"}}).labels), (std::vector<int64_t>{1}));
  EXPECT_EQ(longs(read("a,c\n0,2\n", {.classes = 5}).labels), (std::vector<int64_t>{2}));
  EXPECT_EQ(read("\"a \"\"b\"\"\",c\n1,0\n").columns, (std::vector<std::string>{"a \"b\""}));
}

TEST_F(Csv, RefusesBadTablesAtTheirLine) {
  refused("", "empty", "");
  refused("\n\n", "empty", "");
  refused("a,b\n", "no rows", "");
  refused("a,b,c\n1,2,0\n1,2\n", "2 fields, but the first line has 3", ":3");
  refused("a,b,c\n1,2,0\n\n1,2,3,0\n", "4 fields", ":4");
  refused("a,b\n1,0\nthree,0\n", "1 column with cells that are not numbers: a has 1 with text (three)", ":3");
  refused("a,b\n1,0\n1x,0\n", "a has 1 with text (1x)", ":3");
  for (const char* missing : {"", "nan", " NA", "?", "-"})
    refused("a,b\n" + std::string(missing) + ",0\n", "a has 1 missing", ":2");
  for (const char* endless : {"-inf", "1e39", "1e999"})
    refused("a,b\n" + std::string(endless) + ",0\n", "a has 1 not finite", ":2");
  refused("a,b\n\"1,0\n", "a quote that begins here does not end", ":2");
  refused("a,b\n\"1\"2,0\n", "closing quote", ":2");
  refused("a,b\n1,\n", "the label b has 1 missing", ":2");
  refused("a,b\n1,nan\n", "the label b has 1 missing", ":2");
  refused("a\n1\n", "the label is the only column", "");
  refused(std::string(5000, 'a') + ",b\n1,0\n", "the name of column 0 has 5000 bytes", "");
  refused("a,b\n1,0\n", "no column 'd'", "", {.label = "d"});
  refused("a,b\n1,0\n", "no column '2'", "", {.features = {"2"}});
  refused("a,b\n1,0\n", "the label and in task.features", "", {.features = {"b"}});
  refused("a,b\n1,5\n", "not one of the 3 classes", ":2", {.classes = 3});
  refused("a,b\n1,elk\n", "not one of the 2 classes", ":2", {.class_names = {"ant", "dog"}});
  refused("a,b\n1,0\n", "0 has 1 with text (a)", ":1", {.header = false});
  refused(std::string("a,b\n1\0,0\n", 9), "a has 1 with text", ":2");
  std::string measured = "a,b\n";
  for (int i = 0; i < 10'001; ++i) measured += "1," + std::to_string(i) + ".5\n";
  refused(measured, "is this column a class?", ":10002");
}

TEST_F(Csv, ReadsBooleansAndDecimalCommas) {
  const CsvOptions semicolons{.delimiter = ';'};
  const auto table = read("a;b;y\n1,5;True;True\n-2;FALSE;False\n", semicolons);
  EXPECT_EQ(floats(table.features), (std::vector<float>{1.5, 1, -2, 0}));
  EXPECT_EQ(table.class_names, (std::vector<std::string>{"False", "True"}));
  EXPECT_TRUE(table.decimal_commas);
  refused("a;b;y\n1,5;2.5;0\n", "1,5 has a decimal comma, and 2.5 a decimal point", "", semicolons);
  refused("a,b\n\"1,234\",0\n", "a has 1 with text (1,234)", ":2");
  for (const auto& [text, delimiter] : std::map<std::string, char>{{"a;b\n1,5;2,5\n", ';'},
                                                                   {"1,5;2,5\n1,5;2,5\n", ';'},
                                                                   {"a\tb\n\"1;\"\t2\n", '\t'},
                                                                   {"a,b\n\"1;2\",3\n", ','},
                                                                   {"a,b;c\n1,2\n", ','}})
    EXPECT_EQ(find_delimiter(folder.write("d.csv", text)), delimiter) << text;
}

TEST_F(Csv, CategoriesBecomeAColumnPerValue) {
  const auto table = read("n,c,a,y\n10,x,1,0\n9,,2,1\n10,w,3,1\n",
                          {.categories = {"c", "n"}, .missing = MissingValues::mean});
  EXPECT_EQ(table.feature_names(), (std::vector<std::string>{"n=9", "n=10", "c=w", "c=x", "a"}));
  EXPECT_TRUE(table.features[1].narrow(0, 2, 2).isnan().all().item<bool>());
  EXPECT_EQ(floats(table.features[2].contiguous()), (std::vector<float>{0, 1, 1, 0, 3}));
  EXPECT_EQ(table.missing, (std::vector<std::pair<std::string, int64_t>>{{"c", 1}}));
  refused("c,y\nx,0\n,1\n", "c has 1 missing", ":3", {.categories = {"c"}});
  refused("c,y\nz,0\n", "column c: 'z' is not one of the 2", ":2", {.values = {{"w", "x"}}});
  refused("c,y\nx,0\n", "'y' in task.categories is not a feature", "", {.categories = {"y"}});
  std::string names = "name,y\n";
  for (int i = 0; i < 1001; ++i) names += format("Name {},0\n", i);
  refused(names, "column name: has more than 1000 different values", ":1002", {.categories = {"name"}});
}

TEST_F(Csv, TakesTheColumnThatIsCalledLabel) {
  const auto label_of = [this](const std::string& header, const CsvOptions& options = {}) {
    const auto table = read(header + "\n1,2,3\n4,5,6\n", options);
    EXPECT_EQ(table.columns.size(), options.features.empty() ? 2u : options.features.size());
    return format("{} {}", table.label, table.label_column);
  };
  EXPECT_EQ(label_of("label,a,b"), "label 0");
  EXPECT_EQ(label_of("a,TARGET,b"), "TARGET 1");
  EXPECT_EQ(label_of("a,Class,b"), "Class 1");
  EXPECT_EQ(label_of("a,labels,b"), "b 2") << "an exact name";
  EXPECT_EQ(label_of("a,label,class"), "class 2") << "and the last column";
  EXPECT_EQ(label_of("label,a,b", {.label = "a"}), "a 1");
  EXPECT_EQ(label_of("label,a,b", {.label = "-1"}), "b 2");
  EXPECT_EQ(label_of("class,a,b", {.features = {"class"}}), "b 2") << "a feature is no label";
  EXPECT_EQ(label_of("7,8,9", {.header = false}), "2 2");
  EXPECT_EQ(label_of("x,y,", {}), "2 2") << "a name that says nothing";
  refused("class,label,a\n1,2,3\n", "column 'class' or 'label'", "");
}

const std::string kGaps =
    "id,age,sex,cabin,fare,y\n1,20,m,A1,7,0\n2,NA,f,,8,1\n3,,m,,9,0\n4,40,f,inf,10,1\n5,50,m,n/a,11,\n";

TEST_F(Csv, OneErrorNamesEveryColumnThatHoldsNoNumbers) {
  const auto error = test::error_from([&] { read(kGaps); });
  EXPECT_EQ(
      std::string(error.what()),
      "4 columns with cells that are not numbers: age has 2 missing; sex has 5 with text (f, m); cabin has 3 "
      "missing, 1 not finite, 1 with text (A1); the label y has 1 missing");
  EXPECT_EQ(error.where(), folder / "t.csv:2");
  for (const auto* part : {"task.ignore: [sex, cabin]", "task.categories: [sex, cabin]",
                           "task.missing to drop", "missing labels"})
    EXPECT_NE(error.hint().find(part), std::string::npos) << part << ": " << error.hint();
}

TEST_F(Csv, RowsWithoutAValueAreLeftOutOrMarked) {
  const CsvOptions drop{.ignore = {"cabin", "2"}, .missing = MissingValues::drop};
  const auto table = read(kGaps, drop);
  EXPECT_EQ(floats(table.features.contiguous()), (std::vector<float>{1, 20, 7, 4, 40, 10}));
  EXPECT_EQ(longs(table.labels), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(table.dropped, 3);
  EXPECT_EQ(table.missing, (std::vector<std::pair<std::string, int64_t>>{{"age", 2}, {"y", 1}}));
  const auto marked = read("a,y\n1,0\n?,1\n", {.missing = MissingValues::mean});
  EXPECT_TRUE(std::isnan(marked.features[1][0].item<float>()));
  const auto numbers = read("a,y\n1,2\n3,none\n", {.numbers = true, .missing = MissingValues::drop});
  EXPECT_EQ(numbers.labels.size(0), 1);
  EXPECT_EQ(read("a,y\n1,NA\n2,b\n").class_names.size(), 2u) << "a class may be called so";
  EXPECT_EQ(read("a,y\n1,NA\n2,b\n", {.missing = MissingValues::drop}).class_names.size(), 1u);
  refused("a,y\n,0\n,1\n", "none is left", "", {.missing = MissingValues::drop});
}

TEST_F(Csv, IgnoresWhatItIsToldTo) {
  const auto table = read("id,a,class\n7,1,0\n8,2,1\n", {.ignore = {"id"}});
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a"}));
  EXPECT_EQ(read("class,a,y\n7,1,0\n8,2,1\n", {.ignore = {"class"}}).label, "y");
  std::string many = "id,a,c,y\n";
  for (int i = 0; i < 20; ++i) many += format("{},{}.5,{},{}\n", i, i, i % 19, i % 2);
  EXPECT_EQ(read(many).ids, std::vector<std::string>{"id"}) << "told, as it may be one to ignore";
  refused("a,b\n1,0\n", "no column 'd'", "", {.ignore = {"d"}});
  refused("a,b\n1,0\n", "the label and in task.ignore", "", {.label = "b", .ignore = {"b"}});
  refused("a,b,c\n1,0,1\n", "in task.ignore and in task.features", "", {.features = {"a"}, .ignore = {"a"}});
  refused("a,b\n1,0\n", "the label is the only column", "", {.ignore = {"a"}});
}

TEST_F(Csv, AFirstLineThatPromisesTooMuchTakesNoMemory) {
  std::string text = "c0";
  for (int i = 1; i < 100'000; ++i) text += ",c" + std::to_string(i);
  for (int i = 0; i < 100'000; ++i) text += "\n1";  // 40 GB of floats, if it were true
  refused(text, "1 field, but the first line has 100000", ":2");
  refused(std::string(2'000'000, ',') + "\n1\n", "fields in a row", ":1");
}

}  // namespace
}  // namespace lockstep

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
    const auto error = test::error_from([&] { read(name, content, columns); });
    EXPECT_TRUE(test::has(error.what(), words));
    EXPECT_EQ(error.where(), folder / (name + place)) << error.what();
    EXPECT_FALSE(error.hint().empty());
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

TEST_F(TextRowsTest, AFieldInQuotesMayHaveSeveralLines) {
  EXPECT_EQ(read("a.csv", "text,label\n\"two\n\nlines\",good\nx,bad\n"),
            (Rows{{"two\n\nlines", "good"}, {"x", "bad"}}));
  EXPECT_EQ(lines, (std::vector<int64_t>{2, 5}));
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
