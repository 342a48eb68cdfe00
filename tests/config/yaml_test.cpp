// Texts that are no config, or mean harm: an error each, soon, and never a crash.
#include "trainer/config/yaml.h"

#include <chrono>

#include "config/support.h"

namespace lockstep::config {
namespace {

using test::has;

InputError refused(const std::string& text) {
  SCOPED_TRACE(text.substr(0, 100));
  return test::error_from([&] { parse_yaml(text, "c.yaml"); });
}

void expect_refused(const std::string& text, const std::string& where, const std::string& what) {
  const InputError error = refused(text);
  EXPECT_EQ(error.where(), where) << error.what();
  EXPECT_TRUE(has(error.what(), what)) << error.what();
  EXPECT_FALSE(error.hint().empty());
}

std::string repeated(const std::string& part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

TEST(Yaml, KeepsPlacesAndQuotes) {
  const NodePtr root = parse_yaml("a: {b: \"x\", c: [1, 2]}\n", "c.yaml");
  ASSERT_EQ(root->kind, YamlNode::Kind::map);
  const YamlNode& inner = *root->entries[0].second;
  EXPECT_EQ(inner.entries[0].second->text, "x");
  EXPECT_TRUE(inner.entries[0].second->quoted);
  EXPECT_EQ(inner.entries[1].second->items.size(), 2u);
  EXPECT_FALSE(inner.entries[1].second->items[0]->quoted);
  EXPECT_EQ(inner.entries[1].second->items[1]->place.text(), "c.yaml:1:20");
}

TEST(Yaml, RefusesWhatIsNotText) {
  expect_refused("a: {}\nb: \xFF\n", "c.yaml:2:4", "not UTF-8");
  expect_refused(std::string("a: 1\0b", 6), "c.yaml:1:5", "control character (\\x00)");
  expect_refused("a: \x1b[31m", "c.yaml:1:4", "control character (\\x1b)");
  expect_refused("\xFE\xFF\0a", "c.yaml:1:1", "not UTF-8");
  expect_refused("a: \xC0\xAF", "c.yaml:1:4", "not UTF-8");      // an overlong slash
  expect_refused("a: \xED\xA0\x80", "c.yaml:1:4", "not UTF-8");  // half of a surrogate pair
  expect_refused("a: \xE2\x82", "c.yaml:1:4", "not UTF-8");      // cut off
  expect_refused("# all\ra: 1\r", "c.yaml:1:6", "carriage return");
}

TEST(Yaml, RefusesWhatYamlRefuses) {
  for (const char* text : {"a: {b", "a: [1, 2", "a: \"x", "a: 'x", "a: b: c", "{a: 1}}", "a: *nope", "a: &",
                           "]", "a: @b", "a: `b", "a: \"\\q\"", "%YAML 9.9.9\n---\n", "? [", "a: !<"}) {
    EXPECT_TRUE(has(refused(text).where(), "c.yaml:")) << text;
  }
}

TEST(Yaml, RefusesSecondDocumentsAndTags) {
  expect_refused("a: 1\n---\nb: 2\n", "c.yaml:3:1", "a second document");
  expect_refused("a: !!int 3", "c.yaml:1:4", "a YAML tag");
  expect_refused("a: !!python/object:os.system x", "c.yaml:1:4", "a YAML tag");
  expect_refused("a: !mine {b: 1}", "c.yaml:1:4", "a YAML tag");
  EXPECT_EQ(parse_yaml("---\na: 1\n...\n", "c")->entries.size(), 1u);
}

TEST(Yaml, RefusesCycles) {
  expect_refused("a: &x [1, *x]", "c.yaml:1:4", "nested too deeply");
  expect_refused("a: &x {b: *x}", "c.yaml:1:4", "nested too deeply");
  EXPECT_THROW(parse_yaml("&x *x : 1", "c"), InputError);
}

TEST(Yaml, RefusesNestingBombs) {
  for (const std::string open : {"[", "{a: ", "- ", "? ", "- - ", "[{a: ", "- ? "}) {
    EXPECT_TRUE(has(refused(repeated(open, 5000)).where(), "c.yaml:1:")) << open;
  }
  std::string stairs;
  for (size_t i = 0; i < 100; ++i) stairs += std::string(i, ' ') + "a:\n";
  expect_refused(stairs, "c.yaml:17:17", "nested too deeply");
}

// Each level names the one below ten times: 10^12 nodes in all.
TEST(Yaml, RefusesABombOfAliases) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i <= 12; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    const std::string name = "a" + std::to_string(i);
    bomb += name + ": &" + name + " [" + repeated(below + ", ", 9) + below + "]\n";
  }
  expect_refused(bomb, "c.yaml:1:16", "too many values");
}

}  // namespace
}  // namespace lockstep::config
