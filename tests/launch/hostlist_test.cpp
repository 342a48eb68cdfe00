#include "lockstep/launch/scheduler.h"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Hosts = std::vector<std::string>;

}  // namespace

TEST(NodeFile, HasOneHostALine) {
  EXPECT_EQ(launch::parse_node_file("n1\nn1\r\n\n  n2  \nn2.site"), (Hosts{"n1", "n1", "n2", "n2.site"}));
  EXPECT_EQ(launch::unique_hosts({"n2", "n1", "n2"}), (Hosts{"n2", "n1"}));
  EXPECT_TRUE(launch::parse_node_file("").empty());
  EXPECT_THROW(launch::parse_node_file("n1\nn 2\n"), InputError);
  EXPECT_THROW(launch::parse_node_file("n1;reboot\n"), InputError);
  EXPECT_THROW(launch::parse_node_file("-oProxyCommand=x"), InputError);
}

TEST(TaskCounts, OfAStep) {
  EXPECT_EQ(launch::parse_task_counts("2(x2)"), (std::vector<int>{2, 2}));
  EXPECT_EQ(launch::parse_task_counts("3,1"), (std::vector<int>{3, 1}));
  EXPECT_EQ(launch::parse_task_counts("4(x2),1,2(x1)"), (std::vector<int>{4, 4, 1, 2}));
  for (const char* text :
       {"", "0", "x", "2(x)", "2(x0)", "2(x2", "2(y2)", "2,,1", "2(x1000000000)", "-1", "(x2)", "2(x2)3"}) {
    EXPECT_THROW(launch::parse_task_counts(text), InputError) << text;
  }
}

TEST(Hosts, ShortAndLongNamesAreTheSame) {
  EXPECT_TRUE(launch::same_host("n1", "n1.cluster.org"));
  EXPECT_FALSE(launch::same_host("n1", "n10"));
  EXPECT_FALSE(launch::same_host("10.0.0.1", "10.0.0.2"));
}

}  // namespace lockstep
