#include "trainer/config/config_text.h"

#include <nlohmann/json.hpp>

#include "config/support.h"
#include "trainer/config/keys.h"

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

}  // namespace
}  // namespace lockstep::test
