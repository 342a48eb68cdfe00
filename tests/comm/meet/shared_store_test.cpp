#include "lockstep/comm/meet/shared_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

c10::intrusive_ptr<SharedStore> fresh_store() {
  return c10::make_intrusive<SharedStore>(base::Descriptor(::open("/tmp", O_TMPFILE | O_RDWR, 0600)));
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
    return static_cast<c10d::Store&>(*store).compareSet(key, std::string(expected), std::string(desired));
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

}  // namespace
}  // namespace lockstep::comm
