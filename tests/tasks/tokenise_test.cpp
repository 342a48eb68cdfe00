#include "lockstep/tasks/tokenise.h"

#include <ATen/ATen.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "peer.h"

namespace lockstep::tasks {
namespace {
namespace fs = std::filesystem;

struct KeptTokens : testing::Test {
  test::TempFolder folder;
  std::string texts = folder.write("a.csv", "text,label\n"), kept = folder / "a.tokens";

  static TokenFile some() {
    TokenFile made;
    made.tokens = {.ids = at::tensor({5, 6, 7, 8}, at::kInt),
                   .starts = at::tensor({0, 2, 3, 4}, at::kLong),
                   .seconds = at::tensor({1, 0, 1}, at::kInt),
                   .targets = at::tensor({0, 1, 1}, at::kLong)};
    made.names = {"caf\u00e9", ""};
    made.first_seen = {2, 3};
    made.left_out = 4;
    return made;
  }
  std::optional<TokenFile> find(const std::string& key = "key") { return find_kept_tokens(kept, key, texts); }
  void keep(const TokenFile& made = some()) { keep_tokens(kept, "key", texts, made); }
};

TEST_F(KeptTokens, ComeBackAsTheyWere) {
  EXPECT_FALSE(find());
  keep();
  const auto wanted = some(), found = find().value();
  const auto whole = base::read_text(kept);
  std::fstream(kept, std::ios::in | std::ios::out) << std::string(whole.size(), 'x');  // the run goes on
  EXPECT_TRUE(at::equal(found.tokens.ids, wanted.tokens.ids));
  EXPECT_TRUE(at::equal(found.tokens.starts, wanted.tokens.starts));
  EXPECT_TRUE(at::equal(found.tokens.seconds, wanted.tokens.seconds));
  EXPECT_TRUE(at::equal(found.tokens.targets, wanted.tokens.targets));
  EXPECT_EQ(found.names, wanted.names);
  EXPECT_EQ(found.first_seen, wanted.first_seen);
  EXPECT_EQ(found.left_out, 4);
  folder.write("a.tokens", whole);
  EXPECT_FALSE(find("another key"));
  folder.write("a.tokens", whole.substr(0, whole.size() / 2));
  EXPECT_FALSE(find()) << "a damaged file is made again";
}

TEST_F(KeptTokens, AreNotTrustedIfOthersCanWriteThem) {
  keep();
  for (const mode_t rights : {0664, 0646}) {
    fs::permissions(kept, fs::perms(rights));
    EXPECT_FALSE(find()) << std::oct << rights;
  }
  fs::permissions(kept, fs::perms(0644));
  EXPECT_TRUE(find());
}

// A file with correct checksums can still contain anything.
TEST_F(KeptTokens, NeverLeadToATokenOrClassThatDoesNotExist) {
  const std::vector<std::pair<const char*, std::function<void(Tokens&)>>> wrong = {
      {"a start behind the end", [](auto& set) { set.starts[1] = int64_t{1} << 40; }},
      {"a start before the one before", [](auto& set) { set.starts[2] = 1; }},
      {"a start below 0", [](auto& set) { set.starts[1] = -1; }},
      {"another end", [](auto& set) { set.starts[3] = 3; }},
      {"a token below 0", [](auto& set) { set.ids[0] = -1; }},
      {"a second text behind its sample", [](auto& set) { set.seconds[1] = 2; }},
      {"a class that has no name", [](auto& set) { set.targets[0] = 2; }},
      {"a class below 0", [](auto& set) { set.targets[0] = -1; }},
      {"a target too few", [](auto& set) { set.targets = set.targets.slice(0, 0, 2).clone(); }},
      {"no samples", [](auto& set) { set.seconds = set.seconds.slice(0, 0, 0).clone(); }},
      {"starts of another type", [](auto& set) { set.starts = set.starts.to(at::kInt); }},
      {"starts in a column", [](auto& set) { set.starts = set.starts.unsqueeze(1); }},
      {"second texts in a column", [](auto& set) { set.seconds = set.seconds.unsqueeze(1); }},
      {"classes in a column", [](auto& set) { set.targets = set.targets.unsqueeze(1); }},
  };
  for (const auto& [what, spoil] : wrong) {
    auto made = some();
    spoil(made.tokens);
    keep(made);
    EXPECT_FALSE(find()) << what;
    Arena arena;
    EXPECT_THROW(read_tokens(kept, arena, [](auto&, auto&) {}), InputError) << what;
  }
}

TEST_F(KeptTokens, DependOnTheStateOfTheTexts) {
  const auto before = state_of_file(texts);
  EXPECT_EQ(state_of_file(texts), before);
  folder.write("a.csv", "text,label\nmore,x\n");
  EXPECT_NE(state_of_file(texts), before);
  EXPECT_THROW(state_of_file(folder / "missing.csv"), InputError);
}

}  // namespace
}  // namespace lockstep::tasks
