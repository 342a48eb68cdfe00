#include "lockstep/comm/meet/shared_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

c10::intrusive_ptr<SharedStore> fresh_store() {
  return SharedStore::create(base::Descriptor(::open("/tmp", O_TMPFILE | O_RDWR, 0600)));
}

TEST(SharedStore, KeepsTheLastValue) {
  auto store = fresh_store();
  store->set("a", "one");
  store->set("a", "two");
  EXPECT_EQ(store->get_to_str("a"), "two");
  EXPECT_EQ(store->getNumKeys(), 1);
  EXPECT_FALSE(store->check({"ab"})) << "keys are no prefixes";
  store->set("empty", "");
  EXPECT_EQ(store->get_to_str("empty"), "");
}

TEST(SharedStore, ACounterDoesNotFillIt) {
  auto store = fresh_store();
  for (int i = 0; i < 72'000; ++i) store->add("polled", i % 2);
  EXPECT_EQ(store->add("polled", 0), 36'000);
  EXPECT_EQ(store->getNumKeys(), 1);
}

TEST(SharedStore, AValueThatOutgrowsItsRoomMoves) {
  auto store = fresh_store();
  store->set("a", "1");
  store->set("b", "2");
  store->set("a", std::string(1000, 'x'));
  store->set("a", "short");
  EXPECT_EQ(store->get_to_str("a"), "short");
  EXPECT_EQ(store->get_to_str("b"), "2");
  EXPECT_EQ(store->getNumKeys(), 2);
}

TEST(SharedStore, TheRoomOfDeletedKeysIsUsedAgain) {
  auto store = fresh_store();
  for (int i = 0; i < 1000; ++i) {
    store->set("text/1", std::vector<uint8_t>(1000));
    store->deleteKey("text/1");
  }
  EXPECT_EQ(store->getNumKeys(), 0);
  EXPECT_FALSE(store->deleteKey("text/1"));
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

TEST(SharedStore, AFullStoreIsAnError) {
  auto store = fresh_store();
  EXPECT_THROW(store->set("big", std::vector<uint8_t>(300 << 20)), Error);
  store->set("small", "still works");
  EXPECT_EQ(store->get_to_str("small"), "still works");
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
