// What predict writes, of made-up answers.
#include "trainer/saved_model/saved_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace {

using nlohmann::json;

const Prediction kCat = {7, 1, "a \"big\", cat", "in,put.png", {0.25F, 0.5F}};

TEST(Predictions, QuoteInCsvWhatNeedsIt) {
  EXPECT_EQ(csv_lines({kCat}, false), "7,\"in,put.png\",\"a \"\"big\"\", cat\",0.25,0.5\n");
  EXPECT_EQ(csv_header({"dog", "a \"big\", cat"}, true),
            "sample,name,class,p(dog),\"p(a \"\"big\"\", cat)\"\n");
  EXPECT_EQ(csv_header({}, false) + csv_lines({{3, 0, "", "", {0.1F}}}, true),
            "sample,value\n3,0.100000001\n");
}

TEST(Predictions, AreOneJsonValueOfAllRanksLines) {
  const auto lines = json_lines({kCat}, false) + json_lines({{8, 0, "no \xff letter", "", {1}}}, false);
  EXPECT_EQ(json::parse(json_document(lines)), json::parse(R"({"predictions": [
      {"sample": 7, "name": "in,put.png", "class": "a \"big\", cat", "label": 1, "probabilities": [0.25, 0.5]},
      {"sample": 8, "class": "no \ufffd letter", "label": 0, "probabilities": [1.0]}]})"));
  EXPECT_EQ(json_lines({{3, 0, "", "", {1.5F}}}, true), "{\"sample\":3,\"value\":1.5}\n");
  EXPECT_EQ(json::parse(json_document("")), json::parse(R"({"predictions": []})"));
}

}  // namespace
}  // namespace lockstep::train
