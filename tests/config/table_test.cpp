// The table of keys and the structs of settings.h say the same.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>

#include "config/support.h"
#include "trainer/config/config_text.h"
#include "trainer/config/keys.h"

namespace lockstep::config {
namespace {

struct Anything {
  template <class T>
  operator T() const {  // never called: only asked whether it would fit
    return {};
  }
};

template <class Struct, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires {
    Struct{(void(I), Anything{})...};
  };
}

// how many fields the aggregate has: the most initializers that it takes
template <class Struct, size_t N = 64>
constexpr size_t fields() {
  if constexpr (takes<Struct>(std::make_index_sequence<N>{})) {
    return N;
  } else {
    return fields<Struct, N - 1>();
  }
}

struct Three {
  std::string text = "x";
  std::array<double, 2> pair{};
  std::vector<std::string> list;
};
static_assert(fields<Three>() == 3, "the count itself");

size_t rows(const std::string& section) {
  size_t count = 0;
  for (const Key& key : keys()) count += key.section() == section;
  return count;
}

TEST(Table, HasARowForEveryFieldOfTheSettings) {
  EXPECT_EQ(fields<Settings>(), sections().size());
  const std::pair<const char*, size_t> found[] = {
      {"run", fields<RunSettings>()},           {"launch", fields<LaunchOptions>()},
      {"task", fields<TaskSettings>()},         {"data", fields<DataSettings>()},
      {"model", fields<ModelSettings>()},       {"ddp", fields<DdpSettings>()},
      {"parallel", fields<ParallelSettings>()}, {"data_parallel", fields<DataParallelSettings>()},
      {"optim", fields<OptimSettings>()},       {"schedule", fields<ScheduleSettings>()},
      {"train", fields<TrainSettings>()},       {"checkpoint", fields<CheckpointSettings>()}};
  for (const auto& [section, count] : found) EXPECT_EQ(count, rows(section)) << section;
}

TEST(Table, HasNoKeyAndNoFieldTwice) {
  Settings settings;
  std::set<std::string> paths;
  std::set<const void*> places;
  for (const Key& key : keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    const void* place = std::visit([](auto* field) -> const void* { return field; }, key.field(settings));
    EXPECT_TRUE(places.insert(place).second) << key.path;
    EXPECT_EQ(key.section() + "." + key.name(), key.path);
  }
}

TEST(Table, SelectsByKeysAndChoicesThatExist) {
  for (const Key& key : keys()) {
    const Use& use = key.rules.use;
    if (use.selector.empty()) continue;
    const Key* selector = find_key(use.selector);
    ASSERT_NE(selector, nullptr) << key.path;
    for (const std::string& value : use.values) {
      const auto& choices = selector->rules.choices;  // free texts (task.name) are other rooms' to know
      EXPECT_TRUE(choices.empty() || std::count(choices.begin(), choices.end(), value) == 1)
          << key.path << value;
    }
  }
}

TEST(Table, SettlesByWordsThatTheKeyKnows) {
  for (const Key& key : keys()) {
    const auto& [open, before] = key.rules.once;
    const auto& choices = key.rules.choices;
    if (choices.empty() || before.empty()) continue;
    EXPECT_TRUE(std::count(choices.begin(), choices.end(), open) == 1) << key.path;
    EXPECT_TRUE(std::count(choices.begin(), choices.end(), before) == 1) << key.path;
  }
}

}  // namespace
}  // namespace lockstep::config

namespace lockstep::test {
namespace {

TEST(Schema, HasEveryKeyAndNoOther) {
  const auto schema = nlohmann::json::parse(config::json_schema());
  EXPECT_EQ(schema.at("$schema"), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema.at("additionalProperties"), false);
  size_t count = 0;
  for (const auto& [section, content] : schema.at("properties").items()) {
    EXPECT_EQ(content.at("additionalProperties"), false) << section;
    for (const auto& [name, key] : content.at("properties").items()) {
      EXPECT_NE(config::find_key(section + "." + name), nullptr) << section << "." << name;
      EXPECT_FALSE(key.at("description").get<std::string>().empty());
      ++count;
    }
  }
  EXPECT_EQ(count, config::keys().size());
}

TEST(Schema, CarriesRangesChoicesAndDefaults) {
  const auto sections = nlohmann::json::parse(config::json_schema()).at("properties");
  const auto& train = sections.at("train").at("properties");
  EXPECT_EQ(train.at("epochs").at("minimum"), 1);
  EXPECT_EQ(train.at("epochs").at("default"), 5);
  EXPECT_EQ(train.at("mode").at("enum").size(), 3u);
  const auto& optim = sections.at("optim").at("properties");
  EXPECT_EQ(optim.at("betas").at("items").at("exclusiveMaximum"), 1);
  EXPECT_EQ(optim.at("weight_decay").at("anyOf").at(1).at("const"), "default");
}

// What the config asks the open tables: names, readers, defaults, needs.

TEST(Tables, NameWhatThereIs) {
  EXPECT_TRUE(
      has(error_of("optim: {name: adma}").what(), "the path of a library (.so), or one of sgd, adam, adamw"));
  EXPECT_THROW(settings_of("", {"task.name=minst"}), InputError);
  EXPECT_EQ(settings_of("model: {name: \"\"}").model.name, "");
}

TEST(Tables, SayWhichOptionsARowReads) {
  EXPECT_TRUE(warnings_of("schedule: {name: own, options: {rho: 1}}").empty());
  EXPECT_EQ(warnings_of("schedule: {name: step, options: {rho: 1}}").at(0),
            "schedule.options (c.yaml:1:24) has no effect, because schedule.name is step");
  EXPECT_TRUE(warnings_of("optim: {name: ./lion.so, options: {rho: 1}}").empty());
  EXPECT_EQ(settings_of("", {"schedule.name=own", "schedule.options.rho=2"}).schedule.options.at("rho"), "2");
}

TEST(Tables, KnowAnOptionThatNoneOfThemReads) {
  const auto letter = error_of("schedule: {name: own, options: {roh: 1}}");
  EXPECT_TRUE(has(letter.what(), "unknown option schedule.options.roh")) << letter.what();
  EXPECT_EQ(letter.where(), "c.yaml:1:23");
  EXPECT_TRUE(has(letter.hint(), "did you mean schedule.options.rho?") &&
              letter.hint().ends_with(": options.rho"))
      << letter.hint();
  const auto place = error_of("task: {name: idx}\nmodel: {options: {hiden: 3}}");
  EXPECT_TRUE(has(place.hint(), "did you mean model.hidden?") && place.hint().ends_with(": hidden"))
      << place.hint();
  EXPECT_EQ(error_of("model: {name: simple_cnn, options: {depth: 3}}").hint(),
            "remove it: model simple_cnn reads no options");
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
            "model.hidden (c.yaml:2:9) has no effect, because model.name is pima_net");
}

TEST(Tables, AreInTheSchemaAndTheReference) {
  const auto optim =
      nlohmann::json::parse(config::json_schema()).at("properties").at("optim").at("properties");
  EXPECT_EQ(optim.at("name").at("anyOf").at(0).at("enum"), nlohmann::json({"sgd", "adam", "adamw"}));
  EXPECT_TRUE(has(config::reference(), "| adam, adamw |"));
  EXPECT_TRUE(has(config::reference(), "| `own` | own |"));
}

}  // namespace
}  // namespace lockstep::test
