#include "lockstep/comm/rendezvous/private_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/rendezvous/store.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

class PrivateFolder : public ::testing::Test {
 protected:
  void make_folder() {
    fs::create_directory(path_.parent_path());
    ::chmod(path_.parent_path().c_str(), 0700);
  }
  void plant(const std::string& text) {
    make_folder();
    std::ofstream(path_) << text;
  }
  static mode_t mode_of(const fs::path& path) {
    struct stat facts {};
    ::lstat(path.c_str(), &facts);
    return facts.st_mode & 07777;
  }

  test::TempFolder folder_;
  fs::path root_ = folder_.path(), path_ = root_ / "lockstep-0" / "slurm-0-0-7";
};

TEST_F(PrivateFolder, TellsWhereRankZeroIsAndGoesWithIt) {
  EXPECT_FALSE(find_store_location(path_));
  {
    const PrivateFile file = publish(path_, {.host = "10.0.0.1", .port = 4711, .token = "token"});
    const auto place = find_store_location(path_);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->host, "10.0.0.1");
    EXPECT_EQ(place->port, 4711);
    EXPECT_EQ(place->token, "token");
    EXPECT_EQ(mode_of(path_), 0600U);
    EXPECT_EQ(mode_of(path_.parent_path()), 0700U);
  }
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(PrivateFolder, AFailedStartDoesNotSpoilTheNext) {
  plant(R"({"host": "10.0.0.1", "port": 1, "token": "old"})");
  const PrivateFile file = publish(path_, {.host = "10.0.0.1", .port = 2, .token = "new"});
  EXPECT_EQ(find_store_location(path_)->token, "new");
}

TEST_F(PrivateFolder, HalfAFileIsNone) {
  for (const char* text :
       {"", "{\"host\": \"10.0.0.1\", \"po", "{\"host\": \"10.0.0.1\"}", "7", "\xff\xff"}) {
    plant(text);
    EXPECT_FALSE(find_store_location(path_)) << text;
  }
}

TEST_F(PrivateFolder, WhatIsNoFileOfOursIsNotRead) {
  make_folder();
  std::ofstream(root_ / "elsewhere") << R"({"host": "10.0.0.1", "port": 80, "token": "token"})";
  fs::create_symlink(root_ / "elsewhere", path_);
  EXPECT_FALSE(find_store_location(path_)) << "a link";
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(find_store_location(path_)) << "a pipe, which must not be waited for";
}

TEST_F(PrivateFolder, AFolderThatOthersMayUseIsRefused) {
  make_folder();
  ::chmod(path_.parent_path().c_str(), 0755);
  EXPECT_THROW(LocalStore{path_}, InputError);
  EXPECT_THROW(find_local_store(path_), InputError);
  EXPECT_THROW(find_store_location(path_), InputError);
  EXPECT_THROW(publish(path_, {.host = "a", .port = 1, .token = "w"}), InputError);
}

TEST_F(PrivateFolder, AFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make one";
  make_folder();
  ASSERT_EQ(::chown(path_.parent_path().c_str(), 12345, 12345), 0);
  const auto error = test::error_from([&] { publish(path_, {.host = "a", .port = 1, .token = "w"}); });
  EXPECT_TRUE(test::has(error.what(), "belongs to another user"));
  EXPECT_TRUE(test::has(error.hint(), "LOCKSTEP_RENDEZVOUS_DIR"));
}

TEST_F(PrivateFolder, ALinkInPlaceOfTheFolderIsRefused) {
  fs::create_directory(root_ / "theirs");
  fs::create_directory_symlink(root_ / "theirs", path_.parent_path());
  EXPECT_THROW(publish(path_, {.host = "a", .port = 1, .token = "w"}), InputError);
  EXPECT_TRUE(fs::is_empty(root_ / "theirs"));
}

TEST_F(PrivateFolder, ALocalStoreIsThisUsersAloneAndOutlivesItsName) {
  EXPECT_FALSE(find_local_store(path_));
  StorePtr found;
  {
    const LocalStore meeting(path_);
    meeting.store()->set("a", "1");
    found = find_local_store(path_);
    ASSERT_TRUE(found);
    EXPECT_EQ(mode_of(path_), 0600U);
    EXPECT_EQ(mode_of(path_.parent_path()), 0700U);
    EXPECT_THROW(LocalStore{path_}, Error) << "of another job, on the same MASTER_PORT";
    EXPECT_TRUE(find_local_store(path_)->check({"a"})) << "and the first one goes on";
  }
  EXPECT_TRUE(fs::is_empty(root_));
  EXPECT_EQ(found->get_to_str("a"), "1");
}

TEST_F(PrivateFolder, ALocalStoreThatAKilledStartLeftIsReplaced) {
  {
    const LocalStore meeting(path_);
    fs::rename(path_, root_ / "kept");
  }
  make_folder();
  fs::rename(root_ / "kept", path_);
  EXPECT_FALSE(find_local_store(path_)) << "nobody holds it";
  const LocalStore next(path_);
  EXPECT_TRUE(find_local_store(path_));
}

TEST_F(PrivateFolder, AnotherUsersProcessCannotOpenALocalStore) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root acts as another user";
  fs::permissions(root_, fs::perms::all);
  const LocalStore meeting(path_);
  ::setfsuid(12345);
  const base::Descriptor file(::open(path_.c_str(), O_RDONLY));
  const int reason = errno;
  ::setfsuid(0);
  EXPECT_FALSE(file);
  EXPECT_EQ(reason, EACCES);
}

using namespace std::chrono_literals;

StorePtr fresh_store() {
  return shared_store(base::Descriptor(::open("/tmp", O_TMPFILE | O_RDWR, 0600)));
}

TEST(SharedStore, KeepsTheLastValue) {
  auto store = fresh_store();
  store->set("a", "one");
  store->set("a", "two");
  EXPECT_EQ(store->get_to_str("a"), "two");
  EXPECT_EQ(store->getNumKeys(), 1);
  EXPECT_TRUE(store->deleteKey("a"));
  EXPECT_FALSE(store->deleteKey("a"));
  EXPECT_FALSE(store->check({"a"}));
  store->set("empty", "");
  EXPECT_EQ(store->get_to_str("empty"), "");
}

TEST(SharedStore, ComparesAsHashStoreDoes) {
  auto store = fresh_store();
  const auto compare = [&](const char* key, const char* expected, const char* desired) {
    return store->compareSet(key, std::string(expected), std::string(desired));
  };
  EXPECT_EQ(compare("a", "x", "y"), "x");
  EXPECT_FALSE(store->check({"a"}));
  EXPECT_EQ(compare("a", "", "y"), "y");
  EXPECT_EQ(compare("a", "x", "z"), "y");
  EXPECT_EQ(compare("a", "y", "z"), "z");
}

TEST(SharedStore, WaitingEnds) {
  auto store = fresh_store();
  store->set("here", "1");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(store->wait({"here", "never"}, 50ms), c10::DistStoreError);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 60s);
  store->setTimeout(50ms);
  EXPECT_THROW(store->get("never"), c10::DistStoreError);
}

TEST(SharedStore, ProcessesShareIt) {
  auto store = fresh_store();
  std::vector<int> children;
  for (int child = 0; child < 4; ++child) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    for (int i = 0; i < 200; ++i) store->add("sum", 1);
    store->set("done/" + std::to_string(child), "yes");
    ::_exit(0);
  }
  store->wait({"done/0", "done/1", "done/2", "done/3"}, 20s);
  EXPECT_EQ(store->add("sum", 0), 800);
  for (const int child : children) ::waitpid(child, nullptr, 0);
}

// What a rank leaves on a full disk: the first bytes of a record.
TEST(SharedStore, AnIncompleteRecordIsAnErrorForEveryReader) {
  const base::Descriptor whole(::open("/tmp", O_TMPFILE | O_RDWR, 0600));
  shared_store(base::Descriptor(::dup(whole.number())))->set("key", std::string(100, 'x'));
  std::string bytes(200, '\0');
  bytes.resize(static_cast<size_t>(::pread(whole.number(), bytes.data(), bytes.size(), 0)));
  for (const size_t kept : {size_t{1}, size_t{60}, bytes.size() - 1}) {
    const base::Descriptor file(::open("/tmp", O_TMPFILE | O_RDWR, 0600));
    ASSERT_TRUE(base::write_all(file.number(), bytes.substr(0, kept)));
    EXPECT_THROW(shared_store(base::Descriptor(::dup(file.number())))->set("other", bytes), Error) << kept;
    EXPECT_THROW(shared_store(base::Descriptor(::dup(file.number())))->wait({"key"}, 60s), Error) << kept;
  }
}

}  // namespace
}  // namespace lockstep::comm
