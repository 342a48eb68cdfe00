#include "trainer/config/other_names.h"

#include "config/support.h"
#include "trainer/config/keys.h"

namespace lockstep::test {
namespace {

TEST(OtherNames, LeadToKeysThatAreThere) {
  for (const char* name :
       {"learning_rate", "Learning-Rate", "batch", "num_train_epochs", "max_grad_norm",
        "gradient_accumulation_steps", "random_seed", "num_workers", "fp16", "save_total_limit"}) {
    const auto key = config::key_by_other_name(name);
    EXPECT_NE(config::find_key(key), nullptr) << name << " -> " << key;
  }
  EXPECT_EQ(config::key_by_other_name("learning_rate"), "optim.lr");
  EXPECT_EQ(config::key_by_other_name("banana"), "");
}

TEST(OtherNames, OfEveryKeyNoneIsAKeysOwnName) {
  for (const auto& [name, ours] : config::other_names_of_keys()) {
    EXPECT_NE(config::find_key(ours), nullptr) << ours;
    for (const auto& key : config::keys()) EXPECT_NE(key.name(), name);
    EXPECT_EQ(config::key_by_other_name(name), ours) << name;  // once, and in lower case
  }
  for (const auto& section : {"optimizer", "trainer", "lr_scheduler", "distributed"}) {
    const auto ours = config::section_by_other_name(section);
    const auto& sections = config::sections();
    EXPECT_NE(std::find(sections.begin(), sections.end(), ours), sections.end()) << section;
  }
}

TEST(OtherNames, OfAWordThatNamesAKeyForSure) {
  EXPECT_EQ(config::meant_key("train.epochs"), "train.epochs");
  EXPECT_EQ(config::meant_key("epochs"), "train.epochs");
  EXPECT_EQ(config::meant_key("optim.learning_rate"), "optim.lr");
  EXPECT_EQ(config::meant_key("epcohs"), "");
  EXPECT_EQ(config::nearest_path("epcohs"), "train.epochs");
  EXPECT_EQ(config::nearest_path("zzzzzzzz"), "");
}

}  // namespace
}  // namespace lockstep::test
