// What the config asks the open tables: names, readers, defaults, needs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/support.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"

namespace lockstep::test {
namespace {

TEST(Tables, NameWhatThereIs) {
  EXPECT_TRUE(
      has(error_of("optim: {name: adma}").what(), "the path of a library (.so), or one of sgd, adam, adamw"));
  EXPECT_THROW(settings_of("", {"task.name=minst"}), InputError);
  EXPECT_EQ(settings_of("model: {name: \"\"}").model.name, "");
}

TEST(Tables, SayWhichOptionsARowReads) {
  EXPECT_TRUE(warnings_of("schedule: {name: own, options: {rho: 1}}").empty());
  EXPECT_EQ(warnings_of("schedule: {name: step, options: {rho: 1}}").at(0),
            "schedule.options is set and not used: schedule.name is step (c.yaml:1:24)");
  EXPECT_TRUE(warnings_of("optim: {name: ./lion.so, options: {rho: 1}}").empty());
  EXPECT_EQ(settings_of("", {"schedule.name=own", "schedule.options.rho=2"}).schedule.options.at("rho"), "2");
}

TEST(Tables, KnowAnOptionThatNoneOfThemReads) {
  const auto letter = error_of("schedule: {name: own, options: {roh: 1}}");
  EXPECT_TRUE(has(letter.what(), "unknown option schedule.options.roh")) << letter.what();
  EXPECT_EQ(letter.where(), "c.yaml:1:23");
  EXPECT_EQ(letter.hint(), "did you mean schedule.options.rho? schedule own reads options.rho");
  const auto place = error_of("task: {name: idx}\nmodel: {options: {hiden: 3}}");
  EXPECT_EQ(place.hint(), "did you mean model.hidden? model mlp reads hidden");
  EXPECT_EQ(error_of("model: {name: simple_cnn, options: {depth: 3}}").hint(), "model simple_cnn reads none");
  EXPECT_THROW(settings_of("", {"task.name=pima", "task.options.eval_fracton=0.5"}), InputError);
  const auto overridden =
      config::load_settings("schedule: {name: ./s.so, options: {unit: 3}}", "c.yaml", {"schedule.name=none"});
  EXPECT_EQ(overridden.warnings.size(), 1U) << "the file's options are of the schedule that it names";
  // a library's task sees them all
  EXPECT_EQ(settings_of("task: {name: ./t.so}\nmodel: {name: mlp, options: {a: 1}}").model.options.size(),
            1U);
}

TEST(Tables, SayWhichModelATaskHas) {
  EXPECT_TRUE(warnings_of("task: {name: csv}\nmodel: {hidden: [3]}").empty());
  EXPECT_EQ(warnings_of("task: {name: pima}\nmodel: {hidden: [3]}")[0],
            "model.hidden is set and not used: model.name is pima_net (c.yaml:2:9)");
}

TEST(Tables, AreInTheSchemaAndTheReference) {
  const auto optim =
      nlohmann::json::parse(config::json_schema()).at("properties").at("optim").at("properties");
  EXPECT_EQ(optim.at("name").at("anyOf").at(0).at("enum"), nlohmann::json({"sgd", "adam", "adamw"}));
  EXPECT_TRUE(has(config::reference(), "(adam, adamw)"));
  EXPECT_TRUE(has(config::reference(), "| `own` | own |"));
}

}  // namespace
}  // namespace lockstep::test
