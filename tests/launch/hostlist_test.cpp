#include "lockstep/launch/hostlist.h"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Hosts = std::vector<std::string>;

bool is_refused(const std::string& text) {
  try {
    launch::expand_hostlist(text);
  } catch (const InputError& error) {
    return !error.hint().empty();
  }
  return false;
}

}  // namespace

TEST(HostList, ExpandsSlurmsForms) {
  EXPECT_EQ(launch::expand_hostlist("n1"), Hosts{"n1"});
  EXPECT_EQ(launch::expand_hostlist("n[01-03,7]"), (Hosts{"n01", "n02", "n03", "n7"}));
  EXPECT_EQ(launch::expand_hostlist("a,b[2-3],c"), (Hosts{"a", "b2", "b3", "c"}));
  EXPECT_EQ(launch::expand_hostlist("r[1-2]n[1-3]"), (Hosts{"r1n1", "r1n2", "r1n3", "r2n1", "r2n2", "r2n3"}));
  EXPECT_EQ(launch::expand_hostlist("n[9-11]-ib.site.org"),
            (Hosts{"n9-ib.site.org", "n10-ib.site.org", "n11-ib.site.org"}));
  EXPECT_EQ(launch::expand_hostlist("n[08-10]"), (Hosts{"n08", "n09", "n10"}));
  EXPECT_EQ(launch::expand_hostlist("n[0-999999]").size(), 1'000'000U);
}

TEST(HostList, RefusesWhatIsMalformed) {
  for (const char* text :
       {"",      ",",     "n1,",    "n[",     "n]",     "n[1",   "n1]",      "n[]",
        "n[1-]", "n[-1]", "n[a-b]", "n[3-1]", "n[[1]]", "n[1]]", "n[1-2-3]", "n[1,]",
        "n 1",   "n;rm",  "$(x)",   "n\n",    "-x",     "n[1-2", "n[0x1]",   "n[99999999999999999999]"}) {
    EXPECT_TRUE(is_refused(text)) << text;
  }
}

TEST(HostList, RefusesBombs) {
  EXPECT_TRUE(is_refused("n[0-1000000000]"));
  EXPECT_TRUE(is_refused("n[0-999999999999999999]"));
  EXPECT_TRUE(is_refused("a[0-9999]b[0-9999]"));
  EXPECT_TRUE(is_refused("n[0-999999],m"));
  EXPECT_TRUE(is_refused("n[0-999999]" + std::string(200'000, 'x')));
  std::string many;
  for (int i = 0; i < 100; ++i) many += "[1-2]";
  EXPECT_TRUE(is_refused("n" + many));
}

TEST(HostList, Compresses) {
  EXPECT_EQ(launch::compress_hostlist({"n1"}), "n1");
  EXPECT_EQ(launch::compress_hostlist({"n01", "n02", "n03", "n7"}), "n[01-03,7]");
  EXPECT_EQ(launch::compress_hostlist({"n9", "n10", "n11"}), "n[9-11]");
  EXPECT_EQ(launch::compress_hostlist({"n09", "n10"}), "n[09-10]");
  EXPECT_EQ(launch::compress_hostlist({"login", "n1-ib", "n2-ib"}), "login,n[1-2]-ib");
  EXPECT_EQ(launch::compress_hostlist({"r1n1", "r1n2", "r2n1"}), "r1n[1-2],r2n1");
  EXPECT_EQ(launch::compress_hostlist({}), "");
}

TEST(HostList, RoundTripsKeepOrderAndSpelling) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Hosts hosts;
    const size_t count = 1 + random() % 30;
    for (size_t i = 0; i < count; ++i) {
      std::string number = std::to_string(random() % 120);
      if (random() % 3 == 0) number.insert(0, random() % 3, '0');
      hosts.push_back(std::string(random() % 2 ? "n" : "gpu-") + (random() % 8 ? number : "") +
                      (random() % 4 ? "" : "-ib"));
    }
    EXPECT_EQ(launch::expand_hostlist(launch::compress_hostlist(hosts)), hosts)
        << launch::compress_hostlist(hosts);
    EXPECT_EQ(launch::parse_node_file(launch::write_node_file(hosts)), hosts);
  }
}

TEST(HostList, RandomTextNeverCrashes) {
  std::mt19937 random(11);
  const std::string letters = "n[]0-19,x.(";
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t i = random() % 14; i > 0; --i) text += letters[random() % letters.size()];
    try {
      EXPECT_FALSE(launch::expand_hostlist(text).empty());
    } catch (const InputError&) {
    }
    try {
      EXPECT_FALSE(launch::parse_task_counts(text).empty());
    } catch (const InputError&) {
    }
  }
}

TEST(NodeFile, HasOneHostALine) {
  EXPECT_EQ(launch::parse_node_file("n1\nn1\r\n\n  n2  \nn2.site"), (Hosts{"n1", "n1", "n2", "n2.site"}));
  EXPECT_EQ(launch::unique_hosts({"n2", "n1", "n2"}), (Hosts{"n2", "n1"}));
  EXPECT_EQ(launch::write_node_file({"n1", "n1"}), "n1\nn1\n");
  EXPECT_TRUE(launch::parse_node_file("").empty());
  EXPECT_THROW(launch::parse_node_file("n1\nn 2\n"), InputError);
  EXPECT_THROW(launch::parse_node_file("n1;reboot\n"), InputError);
  EXPECT_THROW(launch::write_node_file({"-oProxyCommand=x"}), InputError);
  EXPECT_THROW(launch::compress_hostlist({"n[1]"}), InputError);
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
