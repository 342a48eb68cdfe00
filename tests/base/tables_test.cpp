#include "lockstep/base/plugins/tables.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep {
namespace {

using Row = RowOf<int()>;
#define TORCH_VERSION "0"
LOCKSTEP_ROW(
    toy, "toy", second, Row, 1, .help = "two", .reads = {"a", "options.b"}, .make = [] { return 2; })
LOCKSTEP_ROW(
    toy, "toy", first, Row, 1, .help = "one", .make = [] { return 1; })
#undef TORCH_VERSION

TEST(Tables, AreInTheOrderOfTheirNames) {
  EXPECT_EQ(base::names_of("toy"), (std::vector<std::string>{"first", "second"}));
  EXPECT_TRUE(base::names_of("game").empty());
  EXPECT_EQ(base::require<Row>("toy", "second", "toy.name").make(), 2);
  EXPECT_EQ(base::find_row("toy", "second")->facts.reads, (std::vector<std::string>{"a", "options.b"}));
}

TEST(Tables, GuessWhatWasMeant) {
  EXPECT_EQ(test::refusal_of([] { base::require_row("toy", "secnod", "toy.name"); }),
            "there is no toy 'secnod' / toy.name / did you mean second?");
}

TEST(Tables, RefuseANameTwice) {
  EXPECT_THROW(lockstep_add_row("any", "toy", "first", lockstep_fill_toy_first), InputError);
}

TEST(Tables, TellLibrariesFromNames) {
  for (const char* name : {"./a", "a.so", "/x/a.so:b", "a.so:b", "../a.so"})
    EXPECT_TRUE(base::names_library(name)) << name;
  for (const char* name : {"", "a", "so", "a.b", "a:b"}) EXPECT_FALSE(base::names_library(name)) << name;
}

TEST(Tables, RefuseWhatIsNoLibrary) {
  EXPECT_EQ(base::find_row("toy", "/nowhere/a.so"), nullptr);
  EXPECT_THROW(base::load_row("toy", "/nowhere/a.so"), InputError);
  const test::TempFolder folder;
  EXPECT_THROW(base::require_row("toy", folder.write("a.so", "text"), "toy.name"), InputError);
}

TEST(Options, AreReadAsWhatTheDefaultIs) {
  const RowOptions options{{"rate", "0.5"}, {"depth", "3"}, {"fast", "true"}, {"kind", "x y"}, {"odd", "1e"}};
  EXPECT_EQ(option(options, "rate", 1.0), 0.5);
  EXPECT_EQ(option(options, "depth", int64_t{1}), 3);
  EXPECT_TRUE(option(options, "fast", false));
  EXPECT_EQ(option(options, "kind", std::string("z")), "x y");
  EXPECT_EQ(option(options, "none", 7.0), 7);
  EXPECT_THROW(option(options, "odd", 1.0), InputError);
  EXPECT_THROW(option(options, "rate", int64_t{1}), InputError);
  EXPECT_THROW(option(options, "kind", true), InputError);
}

}  // namespace
}  // namespace lockstep
