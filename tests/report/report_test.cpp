// A report of whatever a folder holds: hostile, half-written, foreign, or nothing yet.
#include "tools/report/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "temp_folder.h"
#include "tools/report/run_list.h"

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;

class Report : public ::testing::Test {
 protected:
  fs::path run(const std::string& name) const {
    fs::create_directories(scratch_.path() / name);
    scratch_.write(name + "/config.yaml",
                   "run:\n  name: " + std::string("mine") + "\noptim:\n  lr: 0.1\ntask:\n  name: mnist\n");
    return scratch_.path() / name;
  }
  void write(const fs::path& folder, const std::string& file, const std::string& text) const {
    std::ofstream(folder / file, std::ios::binary) << text;
  }
  test::TempFolder scratch_;
};

bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// What the page's script draws.
nlohmann::json data_of(const std::string& html) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const auto at = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(at, html.find("</script>", at) - at));
}

// Of all sections, or of the one with that heading.
std::vector<nlohmann::json> items(const nlohmann::json& data, const std::string& kind,
                                  const std::string& section = "") {
  std::vector<nlohmann::json> found;
  for (const auto& one : data["sections"]) {
    for (const auto& item : one["items"])
      if (item.contains(kind) && (section.empty() || one["heading"] == section)) found.push_back(item[kind]);
  }
  return found;
}

constexpr const char* kStatus =
    R"({"state":"done","reason":"epochs","step":20,"epoch":2,"epochs":2,"attempt":1})";

TEST_F(Report, OfAFolderThatIsNoRunsIsAnError) {
  EXPECT_THROW(report({scratch_.path()}), InputError);
  EXPECT_THROW(report({scratch_.path() / "not there"}), InputError);
}

TEST_F(Report, OfARunThatFailedBeforeItsFirstStepSaysSo) {
  const auto folder = run("early");
  write(folder, "status.json", R"({"state":"failed","reason":"no <data> there","step":0})");
  const auto html = report({folder});
  EXPECT_TRUE(has(html, "failed: no &lt;data> there"));
  EXPECT_TRUE(has(data_of(html).dump(), "failed: no <data> there"));
}

TEST_F(Report, ReadsWhatIsWholeAndCountsWhatIsNot) {
  const auto folder = run("half");
  write(folder, "status.json", kStatus);
  write(folder, "metrics.jsonl",
        "{\"event\":\"step\",\"step\":1,\"epoch\":0,\"loss\":2.5,\"lr\":0.1}\n"
        "{\"event\":\"step\",\"step\":2,\"epoch\":0,\"loss\":null,\"lr\":0.1}\n"
        "[1,2]\n{\"event\":7}\n\xff\xfe\n{\"event\":\"step\",\"step\":\"x\",\"loss\":\"y\"}\n"
        "{\"event\":\"step\",\"step\":3,\"ep");
  write(folder, "report.json", "{\"attempts\":");
  const auto html = report({folder});
  EXPECT_TRUE(has(html, "metrics.jsonl: 3 lines could not be read")) << html;
  EXPECT_TRUE(has(html, "report.json: not a complete JSON object"));
  EXPECT_EQ(items(data_of(html), "curves").at(0)[0]["steps"]["loss"]["y"], nlohmann::json::parse("[2.5]"));
}

TEST_F(Report, WhatIsInThePlaceOfAFileIsSaid) {
  const auto folder = run("odd");
  write(folder, "status.json", "not json");
  fs::create_directory(folder / "metrics.jsonl");
  const auto html = report({folder});
  EXPECT_TRUE(has(html, "status.json is not what a run writes"));
  EXPECT_TRUE(has(html, "metrics.jsonl"));
}

TEST_F(Report, NoNameOfARunIsMarkup) {
  const std::string evil = "<script>alert(1)</script></script><!--\\u001b[2J";
  const auto folder = run("<img src=x onerror=alert(1)>");
  write(folder, "status.json", kStatus);
  write(
      folder, "report.json",
      R"({"attempts":[{"number":1,"hosts":["X"],"state":"X","reason":"X","program":"X","device":"X","job_id":"X",
            "scheduler":"X","phases":{"names":["X"],"ranks":[[1.5]]}}],
            "evaluation":{"step":1,"values":{"X":1},"classes":["X","X"],"confusion":[[1,2],[3,4]],
            "worst":[{"sample":1,"loss":null,"truth":0,"told":1,"shape":["X"],"pixels":"X"}]}})");
  auto text = std::ifstream(folder / "report.json");
  std::string json((std::istreambuf_iterator<char>(text)), {});
  for (auto at = json.find('X'); at != std::string::npos; at = json.find('X', at + evil.size()))
    json.replace(at, 1, evil);
  write(folder, "report.json", json);
  const auto html = report({folder});
  EXPECT_FALSE(has(html, "<script>alert"));
  EXPECT_FALSE(has(html, "<img src=x"));
  EXPECT_FALSE(has(html, "\x1b"));
  EXPECT_FALSE(has(html, "\\u001b"));
  EXPECT_TRUE(has(data_of(html).dump(), "<script>alert(1)</script>"));
}

TEST_F(Report, SeveralRunsShowTheirCurvesAndConfigs) {
  const auto left = run("left"), right = run("right");
  write(right, "config.yaml", "run:\n  name: mine\noptim:\n  lr: 0.2\n  warp: 9\ntask:\n  name: mnist\n");
  for (const auto& folder : {left, right}) {
    write(folder, "status.json", kStatus);
    write(folder, "metrics.jsonl",
          R"({"event":"epoch","epoch":0,"step":10,"train_loss":1,"eval_loss":0.5,"accuracy":0.9})");
  }
  const auto data = data_of(report({left, right}));
  const auto curves = items(data, "curves").at(0);
  ASSERT_EQ(curves.size(), 2U);
  EXPECT_EQ(curves[1]["epochs"]["eval_loss"], nlohmann::json::parse(R"({"x":[10.0],"y":[0.5]})"));
  EXPECT_EQ(items(data, "configs").at(0)[1]["settings"],
            nlohmann::json::parse(
                R"([["run.name","mine"],["optim.lr","0.2"],["optim.warp","9"],["task.name","mnist"]])"));
}

TEST_F(Report, ManyRunsWithManyMetricsAreListedInSeconds) {
  std::string line = R"({"event":"epoch","epoch":0,"step":1)";
  for (int i = 1000; i < 5000; ++i) line += format(",\"metric_{}\":0.5", i);
  for (int i = 0; i < 30; ++i) {
    const auto folder = run(format("many-{}", i));
    write(folder, "status.json", kStatus);
    write(folder, "metrics.jsonl", line + "}\n");
  }
  const auto begin = std::clock();
  EXPECT_EQ(run_json(list_runs(scratch_.path()))["runs"][29]["metrics"].size(), 4000u);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20) << "it took over 100 s before";
}

TEST_F(Report, ARunThatActsHasNoEmptyColumn) {
  const auto folder = run("acts");
  write(folder, "status.json", kStatus);
  write(
      folder, "metrics.jsonl",
      R"({"event":"epoch","epoch":0,"step":10,"train_loss":1,"reward":20,"recent_reward":21.5,"samples_per_second":9})");
  const auto data = data_of(report({folder}));
  EXPECT_EQ(items(data, "table", "Result").at(0).back(), nlohmann::json::parse(R"(["reward","21.50"])"));
}

TEST_F(Report, TheSummarySaysANumberOnce) {
  const auto folder = run("once");
  write(folder, "status.json",
        R"({"state":"done","reason":"epochs","step":20,"epoch":2,"epochs":2,"loss":0.125,"accuracy":0.75})");
  write(folder, "metrics.jsonl",
        R"({"event":"epoch","epoch":1,"step":20,"train_loss":0.125,"eval_loss":0.5,"accuracy":0.75})");
  const auto summary = items(data_of(report({folder})), "table", "Result").at(0).dump();
  EXPECT_EQ(summary.find("0.125"), summary.rfind("0.125")) << summary;
  EXPECT_EQ(summary.find("75"), summary.rfind("75")) << summary;
  EXPECT_TRUE(has(summary, "2 of 2 epochs")) << summary;
}

TEST_F(Report, OnlyHexadecimalPixelsAreKeptAsTheyAre) {
  const auto folder = run("pixels");
  const std::string large(2 * 3 * 32 * 32, 'a');
  for (const auto& pixels : {large, std::string("\\u001b")}) {
    write(folder, "report.json", format(R"({{"evaluation":{{"worst":[{{"pixels":"{}"}}]}}}})", pixels));
    const auto html = report({folder});
    EXPECT_EQ(has(html, large), pixels == large);
    EXPECT_FALSE(has(html, "\\u001b"));
  }
}

TEST_F(Report, AHundredThousandLinesAreASmallPageWithTheirPeak) {
  const auto folder = run("long");
  write(folder, "status.json", kStatus);
  std::ofstream lines(folder / "metrics.jsonl");
  for (int i = 1; i <= 100000; ++i)
    lines << R"({"event":"step","step":)" << i << R"(,"epoch":0,"loss":)"
          << (i == 34567     ? "1000"
              : i % 100 == 0 ? "null"
                             : std::to_string(1.0 / i))
          << ",\"lr\":0.1}\n";
  lines.close();
  const auto html = report({folder});
  EXPECT_LT(html.size(), 300000U);
  const auto loss = items(data_of(html), "curves").at(0)[0]["steps"]["loss"];
  const auto y = loss["y"].get<std::vector<double>>();
  EXPECT_EQ(*std::ranges::max_element(y), 1000);
  EXPECT_EQ(y.size(), loss["x"].size());
}

TEST(TheModule, LinksNoLibtorch) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    EXPECT_FALSE(line.substr(line.rfind('/') + 1).starts_with("libtorch")) << line;
}

}  // namespace
}  // namespace lockstep::report
