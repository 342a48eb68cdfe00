// A report of whatever a folder holds: hostile, half-written, foreign, or nothing yet.
#include "tools/report/page.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ctime>
#include <fstream>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "refusal.h"
#include "temp_folder.h"
#include "tools/report/run_list.h"

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;

class Report : public ::testing::Test {
 protected:
  fs::path run(const std::string& name) const {
    fs::create_directories(scratch_.path() / name);
    scratch_.write(name + "/config.yaml", "run:\n  name: mine\noptim:\n  lr: 0.1\ntask:\n  name: mnist\n");
    return scratch_.path() / name;
  }
  void write(const fs::path& folder, const std::string& file, const std::string& text) const {
    std::ofstream(folder / file, std::ios::binary) << text;
  }
  test::TempFolder scratch_;
};

using test::has;

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
  for (const auto& one : data["sections"])
    for (const auto& item : one["items"])
      if (item.contains(kind) && (section.empty() || one["heading"] == section)) found.push_back(item[kind]);
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
  write(folder, "status.json", "not json");
  fs::remove(folder / "metrics.jsonl"), fs::create_directory(folder / "metrics.jsonl");
  const auto other = report({folder});
  EXPECT_TRUE(has(other, "status.json is damaged") && has(other, "metrics.jsonl"));
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
  auto json = base::read_text(folder / "report.json");
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

TEST_F(Report, RunsOfDifferentTasksShowTheirTasksAndFewOtherKeys) {
  for (const std::string task : {"mnist", "pima"}) {
    std::string config = "data:\n";
    for (int i = 0; i < 20; ++i) config += format("  key_{}: {}\n", i, task);
    write(run(task), "config.yaml", config + "task: {name: " + task + "}\n");
    write(scratch_.path() / task, "status.json", kStatus);
  }
  const auto table = run_table(list_runs(scratch_.path()), 0);
  EXPECT_TRUE(has(table, "task.name") && !has(table, "data.key_6  data.key_7") && has(table, "data.key_7, "))
      << table;
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
  EXPECT_EQ(items(data, "table", "Result").at(0).back(), nlohmann::json::parse(R"(["reward","21.5"])"));
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

// Nor does run_folder, which it stands on.
TEST(TheModule, LinksNoLibtorch) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    EXPECT_FALSE(line.substr(line.rfind('/') + 1).starts_with("libtorch")) << line;
}

// A page is one file that no text can change, and the same as text for a terminal.

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Numbers, HaveThreeDigitsAndAUnit) {
  EXPECT_EQ(bytes_text(4), "4 B");
  EXPECT_EQ(bytes_text(1.5 * 1024), "1.5 KiB");
  EXPECT_EQ(bytes_text(kNan), "–");
  EXPECT_EQ(seconds_text(2e-6), "2 us");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(seconds_text(24.1), "24.1 s") << "not 2.41e+04 ms";
  EXPECT_EQ(seconds_text(2000), "33.3 min");
}

TEST(Page, LoadsNothingAndNoTextIsMarkup) {
  Page page("<script>alert(1)</script>{{data}}");
  page.section("</script>");
  page.text("<!-- <img alt=x> \x1b[2J \xff {{title}}");
  page.table({{"<b>", "&lt;"}, {"\u202e", "</script>"}});
  page.add("details", {{"summary", "<i>"}, {"text", "<u>"}});
  const auto html = page.html();
  for (const auto* markup : {"<script>alert", "<img", "<!--", "<b>", "<i>", "<u>", "\x1b", "\\u001b",
                             "\u202e", "src=", "@import", "url("})
    EXPECT_EQ(count(html, markup), 0U) << markup;
  EXPECT_EQ(count(html, "<script"), 2U) << "the data and the program";
  EXPECT_EQ(count(html, "</script>"), 2U);
  EXPECT_EQ(count(html, "default-src 'none'"), 1U);
  EXPECT_NE(html.find("{{title}}"), std::string::npos) << "a text keeps its braces";
  EXPECT_NE(html.find("<noscript>"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::report
