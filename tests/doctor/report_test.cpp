#include "tools/doctor/report.h"

#include <gtest/gtest.h>

namespace lockstep::doctor {
namespace {

std::string hidden(const std::string& text, const Secrets& secrets = {}) {
  const std::string json = anonymous("[\"" + text + "\"]", secrets);
  return json.substr(5, json.size() - 9);
}

TEST(Report, ReplacesAddressesPathsAndIds) {
  EXPECT_EQ(hidden("10.1.2.3 and 10.1.2.4, again 10.1.2.3"), "address0 and address1, again address0");
  EXPECT_EQ(hidden("fe80::1%eth0 02:42:ac:11:00:02"), "address0%eth0 address1");
  EXPECT_EQ(hidden("in /scratch/data (from ~/x)"), "in path0 (from path1)");
  EXPECT_EQ(hidden("GPU-000102030405060708090a0b0c0d0e0f"), "gpu0");
  EXPECT_EQ(hidden("01234567-89ab-cdef-0123-456789abcdef"), "id0");
  for (const char* text :
       {"127.0.0.1", "/dev/shm: 1 of 2", "0/2", "2.28.9", "0000:17:00.0", "ends 10:30:00", "n/a"})
    EXPECT_EQ(hidden(text), text);
}

TEST(Report, ReplacesKnownNamesAsWholeWordsTheLongestFirst) {
  const Secrets secrets = {{"node", {"n1", "n1.site.org"}}, {"user", {"ann"}}};
  EXPECT_EQ(hidden("n1.site.org n1 n12 ann annex ann@n1", secrets),
            "node1 node0 n12 user0 annex user0@node0");
}

TEST(Report, KeepsCountsAndSettingsOfLibrariesAmongVariables) {
  const std::string json = anonymous(
      R"({"variables": {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "4711", "SLURM_JOB_ACCOUNT": "ab12",
          "NCCL_ALGO": "Ring", "OMPI_MCA_orte_hnp_uri": "tcp://me", "LOCKSTEP_SETUP": "module load x"}})",
      {});
  EXPECT_NE(json.find("\"SLURM_NTASKS\": \"4\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"NCCL_ALGO\": \"Ring\""), std::string::npos) << json;
  for (const char* secret : {"4711", "ab12", "tcp", "module"})
    EXPECT_EQ(json.find(secret), std::string::npos) << secret;
}

TEST(Report, KnowsTheHostsJobsAndAccountsOfAllRanks) {
  Cluster cluster;
  cluster.ranks.resize(2);
  cluster.ranks[0].job = {.host = "n1.site.org", .job_id = "4711"};
  cluster.ranks[1].job.host = "n2";
  cluster.ranks[1].variables = {{"SLURM_JOB_ACCOUNT", "ab12"}, {"SLURM_NTASKS", "4"}};
  const Secrets secrets = secrets_of(cluster, {{"LOGNAME", "ann"}});
  EXPECT_EQ(secrets.at("node"), (std::vector<std::string>{"n1.site.org", "n1", "n2"}));
  EXPECT_EQ(secrets.at("domain"), std::vector<std::string>{"site.org"});
  EXPECT_EQ(secrets.at("job"), std::vector<std::string>{"4711"});
  EXPECT_EQ(secrets.at("account"), std::vector<std::string>{"ab12"});
}

TEST(Text, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(as_text({FindingLevel::warning, "a\x1b[31mb", "do\nthis", "", "gpus"}, "[rank 1] "),
            "[rank 1] warning  gpus        a\\x1b[31mb\n"
            "[rank 1]                      to do: do\n"
            "[rank 1]                      this\n");
}

}  // namespace
}  // namespace lockstep::doctor
