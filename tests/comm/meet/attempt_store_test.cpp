#include "lockstep/comm/meet/attempt_store.h"

#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace lockstep::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

StorePtr under(const std::string& prefix, const StorePtr& store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

StorePtr attempt_on(const StorePtr& agents, const std::string& name) {
  return c10::make_intrusive<AttemptStore>(name, agents);
}

// Where ProcessGroupNCCL has its keys for the whole job.
StorePtr jobs_store(const StorePtr& groups) {
  return dynamic_cast<c10d::PrefixStore&>(*groups).getUnderlyingNonPrefixStore();
}

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

TEST(AttemptStore, WhatNcclLeavesInOneAttemptIsNotSeenInTheNext) {
  const StorePtr agents = c10::make_intrusive<c10d::HashStore>();
  const auto first = attempt_on(agents, "job/0"), second = attempt_on(agents, "job/1");
  jobs_store(under("cuda", under("part/2", first)))->set("exception_dump", "rank 1");
  EXPECT_TRUE(
      jobs_store(under("cuda", first))->check({"exception_dump"}));  // all groups of the attempt see it
  EXPECT_FALSE(jobs_store(under("cuda", second))->check({"exception_dump"}));
  EXPECT_FALSE(agents->check({"exception_dump"}));
}

TEST(AttemptStore, HandsEveryCallOn) {
  const StorePtr agents = c10::make_intrusive<c10d::HashStore>();
  const auto store = attempt_on(agents, "job/0");
  store->set("a", bytes("1"));
  EXPECT_EQ(agents->get("job/0/a"), bytes("1"));
  EXPECT_EQ(store->get("a"), bytes("1"));
  EXPECT_EQ(store->compareSet("a", bytes("1"), bytes("2")), bytes("2"));
  EXPECT_EQ(store->add("count", 2), 2);
  EXPECT_EQ(store->add("count", 3), 5);
  store->wait({"a", "count"}, std::chrono::milliseconds(100));
  EXPECT_THROW(store->wait({"none"}, std::chrono::milliseconds(10)), std::exception);
  EXPECT_EQ(store->getNumKeys(), agents->getNumKeys());
  EXPECT_TRUE(store->deleteKey("count"));
  EXPECT_FALSE(store->check({"count"}));
  store->setTimeout(std::chrono::milliseconds(123));
  EXPECT_EQ(agents->getTimeout(), std::chrono::milliseconds(123));
  EXPECT_EQ(store->getTimeout(), std::chrono::milliseconds(123));
}

TEST(AttemptStore, CarriesManyKeysAtOnceWhereTheOtherDoes) {
  const StorePtr agents = c10::make_intrusive<c10d::HashStore>();
  const auto store = attempt_on(agents, "job/0");
  EXPECT_EQ(store->hasExtendedApi(), agents->hasExtendedApi());
  store->multiSet({"a", "b"}, {bytes("1"), bytes("2")});
  store->append("b", bytes("3"));
  EXPECT_EQ(store->multiGet({"b", "a"}), (std::vector{bytes("23"), bytes("1")}));
  EXPECT_TRUE(agents->check({"job/0/a"}));
}

}  // namespace
}  // namespace lockstep::comm
