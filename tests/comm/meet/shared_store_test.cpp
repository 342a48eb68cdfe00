#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/comm/meet/private_folder.h"

namespace lockstep::comm {
namespace {

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
