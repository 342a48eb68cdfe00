#include "lockstep/tasks/kept_tokens.h"

#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "peer.h"

namespace lockstep::tasks {
namespace {
namespace fs = std::filesystem;

struct KeptTokens : testing::Test {
  test::TempFolder folder;
  std::string source = folder.write("a.csv", "text,label\n"), kept = folder / "a.tokens";

  static Tokenised some() {
    Tokenised made;
    made.tokens = {at::arange(1000, at::kInt), at::tensor({0, 600, 1000}, at::kLong),
                   at::tensor({1, 2}, at::kInt), at::tensor({1.5, 2.5}, at::kFloat).view({2, 1})};
    made.names = {"caf\xe9", ""};  // not UTF-8
    made.first_seen = {2, 3};
    made.left_out = 4;
    return made;
  }
  std::optional<Tokenised> find(const std::string& key = "key") {
    return find_kept_tokens(kept, key, OriginalFile(source));
  }
  void keep() { keep_tokens(kept, "key", OriginalFile(source), some()); }
};

TEST_F(KeptTokens, ComeBackAsTheyWere) {
  EXPECT_FALSE(find());
  keep();
  const auto wanted = some(), found = find().value();
  EXPECT_TRUE(at::equal(found.tokens.ids, wanted.tokens.ids));
  EXPECT_TRUE(at::equal(found.tokens.starts, wanted.tokens.starts));
  EXPECT_TRUE(at::equal(found.tokens.seconds, wanted.tokens.seconds));
  EXPECT_TRUE(at::equal(found.tokens.targets, wanted.tokens.targets));
  EXPECT_EQ(found.names, wanted.names);
  EXPECT_EQ(found.first_seen, wanted.first_seen);
  EXPECT_EQ(found.left_out, 4);
  EXPECT_FALSE(find("another key"));
  folder.write("a.csv", "text,label\nmore,x\n");
  EXPECT_FALSE(find()) << "the texts have changed";
}

TEST_F(KeptTokens, OfADamagedFileAreNotTaken) {
  keep();
  std::ifstream file(kept, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  for (size_t at = 0; at < whole.size(); at += at < 600 ? 3 : 97) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder.write("a.tokens", damaged);
    const auto found = find();
    EXPECT_TRUE(!found || at::equal(found->tokens.ids, some().tokens.ids)) << at;
  }
  for (size_t size = 0; size < whole.size(); size += 61) {
    folder.write("a.tokens", whole.substr(0, size));
    EXPECT_FALSE(find()) << size;
  }
  folder.write("a.tokens", "lockstep tokens\0 of an older version, which are made anew");
  EXPECT_FALSE(find());
}

TEST_F(KeptTokens, AreNotBelievedWhereOthersMayWriteThem) {
  keep();
  for (const mode_t rights : {0664, 0646}) {
    fs::permissions(kept, fs::perms(rights));
    EXPECT_FALSE(find()) << std::oct << rights;
  }
  fs::permissions(kept, fs::perms(0644));
  EXPECT_TRUE(find());
}

TEST_F(KeptTokens, AreNotKeptForAFileThatChangedMeanwhile) {
  const OriginalFile origin(source);
  folder.write("a.csv", "text,label\nmore,x\n");
  EXPECT_THROW(keep_tokens(kept, "key", origin, some()), Error);
  EXPECT_FALSE(fs::exists(kept));
}

TEST_F(KeptTokens, AreWholeWhileManyWriteThem) {
  keep();
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    for (int i = 0; i < 20; ++i) {
      keep();
      if (!find()) ::_exit(1);
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2) << "temporary files are left";
}

}  // namespace
}  // namespace lockstep::tasks
