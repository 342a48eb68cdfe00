#include "lockstep/models/bert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>

#include "live_bytes.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/bert_folder.h"
#include "lockstep/models/model.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const BertConfig kSmall = {.vocab_size = 20,
                           .hidden_size = 8,
                           .num_hidden_layers = 2,
                           .num_attention_heads = 2,
                           .intermediate_size = 16,
                           .max_position_embeddings = 12};
constexpr int64_t kClasses = 3;

std::shared_ptr<BertForSequenceClassification> small_bert(uint64_t seed = 1) {
  torch::manual_seed(seed);
  auto net = std::make_shared<BertForSequenceClassification>(kSmall, kClasses);
  net->draw();
  net->eval();
  return net;
}

/// A folder as export writes it, for a test to spoil.
class BertFolderTest : public ::testing::Test {
 protected:
  void SetUp() override { write_bert_folder(*small_bert(), {.labels = {"a", "b", "c"}}, folder()); }

  std::string folder() const { return temp_ / "bert"; }
  std::string file(const char* name = "model.safetensors") const { return folder() + "/" + name; }
  void write(const char* name, const std::string& text) const { std::ofstream(file(name)) << text; }
  std::string read(const char* name) const { return base::read_text(file(name)); }
  void replace(const char* name, const std::string& what, const std::string& by) const {
    auto text = read(name);
    ASSERT_NE(text.find(what), std::string::npos);
    write(name, text.replace(text.find(what), what.size(), by));
  }
  /// The tensors as `change` leaves them, name by name; an empty name leaves one out.
  void rename(const std::function<std::string(const std::string&)>& change) const {
    auto state = make_dict();
    for (const auto& [name, tensor] : items(read_safetensors(file()))) {
      const auto changed = change(name.toStringRef());
      if (!changed.empty()) put(state, changed, tensor);
    }
    write_safetensors(file(), state);
  }
  std::shared_ptr<Net> load(std::map<std::string, std::string> options = {}) const {
    return make_model({.name = "bert", .path = folder(), .options = std::move(options)}, "", {3, 5},
                      kClasses);
  }
  std::string error(const std::map<std::string, std::string>& options = {}) const {
    const auto error = test::error_from([&] { load(options); });
    EXPECT_FALSE(error.where().empty() || error.hint().empty()) << error.what();
    return describe(error);
  }

  test::TempFolder temp_;
};

at::Tensor text(int64_t tokens = 5) {
  return at::stack({at::arange(tokens), at::zeros({tokens}, at::kLong), at::ones({tokens}, at::kLong)})
      .unsqueeze(0);
}

std::vector<at::Tensor> learn(bool checkpointing, const BertConfig& config, const at::Tensor& input,
                              int64_t* most = nullptr) {
  torch::manual_seed(1);
  BertForSequenceClassification net(config, kClasses);
  net.draw();
  net.use_checkpointing(checkpointing);
  const test::LiveBytes bytes;
  auto tensors = std::vector{net.forward(input)};
  tensors[0].square().sum().backward();
  if (most) *most = bytes.most();
  for (const auto& parameter : net.parameters()) tensors.push_back(parameter.grad());
  return tensors;
}

TEST(BertForSequenceClassification, ComputesItsLayersAgainToTheSameBitsWithLessMemory) {
  torch::set_num_threads(1);
  auto config = kSmall;
  config.num_hidden_layers = 8;
  const auto input = text(10).expand({64, -1, -1}).clone();
  for (const bool padded : {false, true}) {
    if (padded) input.select(1, 2).narrow(1, 7, 3).zero_();
    int64_t most = 0, most_without = 0;
    const auto with = learn(true, config, input, &most), without = learn(false, config, input, &most_without);
    ASSERT_EQ(with.size(), without.size());
    for (size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(at::equal(with[i], without[i])) << i;
    EXPECT_LT(2 * most, most_without) << most << " and " << most_without;
  }
}

TEST_F(BertFolderTest, ComesBackAsItWas) {
  const auto net = load();
  EXPECT_TRUE(state_dict_mismatches(module_state_dict(*net), module_state_dict(*small_bert())).empty());
  net->eval();
  EXPECT_TRUE(at::equal(net->forward(text()), small_bert()->forward(text())));
}

TEST_F(BertFolderTest, ReadsPytorchModelBin) {
  write_pt(file("pytorch_model.bin"), read_safetensors(file()));
  fs::remove(file());
  const auto net = load();
  net->eval();
  EXPECT_TRUE(at::equal(net->forward(text()), small_bert()->forward(text())));
}

TEST_F(BertFolderTest, DrawsTheClassifierThatABaseModelLacksAndSaysSo) {
  rename([](const std::string& name) { return name.starts_with("bert.") ? name.substr(5) : ""; });
  torch::manual_seed(4);
  const auto net = load();
  torch::manual_seed(4);
  const auto wanted = at::empty({kClasses, kSmall.hidden_size}).normal_(0, kSmall.initializer_range);
  EXPECT_TRUE(at::equal(net->named_parameters()["classifier.weight"], wanted));
  EXPECT_TRUE(at::equal(net->named_parameters()["classifier.bias"], at::zeros({kClasses})));
  testing::internal::CaptureStderr();
  net->eval();
  net->forward(text());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  net->train();
  net->forward(text());
  net->forward(text());
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("has no classifier: randomly initialized"));
  EXPECT_EQ(said.find("classifier"), said.rfind("classifier"));
}

TEST_F(BertFolderTest, LeavesOtherHeadsUnusedAndSaysSo) {
  auto state = read_safetensors(file());
  put(state, "cls.predictions.bias", at::zeros({20}));
  put(state, "bert.embeddings.position_ids", at::arange(12));
  write_safetensors(file(), state);
  testing::internal::CaptureStderr();
  load()->forward(text());
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("not used: cls.predictions.bias"));
  EXPECT_THAT(said, Not(HasSubstr("position_ids")));
}

TEST_F(BertFolderTest, IsWrittenWholeOrNotAtAll) {
  const auto out = temp_ / "out";
  const auto net = small_bert();
  const std::vector<std::string> labels = {"a", "b", "c"};
  EXPECT_THROW(write_bert_folder(*net, {.labels = {"one"}}, out), InputError);
  fs::create_directory(file("vocab.txt"));  // is copied last, and is no file
  EXPECT_ANY_THROW(write_bert_folder(*net, {.labels = labels, .tokenizer = folder()}, out));
  EXPECT_THROW(write_bert_folder(*net, {.labels = labels}, folder()), InputError);
  EXPECT_THROW(write_bert_folder(*net, {.labels = labels}, file()), InputError);
  EXPECT_THROW(write_bert_folder(*net, {.labels = labels}, out + "/deep"), InputError);
  EXPECT_EQ(std::distance(fs::directory_iterator(temp_.path()), {}), 1);
  fs::create_directory(out);
  write_bert_folder(*net, {.labels = labels}, out + "/");
  EXPECT_TRUE(fs::exists(out + "/model.safetensors"));
}

struct Spoilt {
  const char* what;
  const char* replaced;
  const char* by;
  const char* says;
};

TEST_F(BertFolderTest, RefusesAConfigThatCannotBe) {
  const std::string whole = read("config.json"), deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  const Spoilt all[] = {
      {"another architecture", "\"bert\"", "\"roberta\"", "model_type is \"roberta\""},
      {"heads", "\"num_attention_heads\": 2", "\"num_attention_heads\": 3", "not a multiple of"},
      {"no heads", "\"num_attention_heads\": 2", "\"num_attention_heads\": 0", "num_attention_heads is 0"},
      {"a text", "\"hidden_size\": 8", "\"hidden_size\": \"wide\"", "must be an integer"},
      {"huge", "\"vocab_size\": 20", "\"vocab_size\": 1000000000000", "vocab_size is 1000000000000"},
      {"activation", "\"gelu\"", "\"gelo\"", "hidden_act is gelo; known are gelu"},
      {"dropout", "\"hidden_dropout_prob\": 0.1", "\"hidden_dropout_prob\": 1.5", "below 1"},
      {"places", "{", "{\"position_embedding_type\": \"relative_key\",", "position_embedding_type"},
      {"decoder", "{", "{\"is_decoder\": true,", "is_decoder"},
      {"padding", "\"pad_token_id\": 0", "\"pad_token_id\": 20", "pad_token_id is 20"},
      {"no JSON", "}", "", "not a JSON object"},
      {"deep", "\"bert\"", deep.c_str(), "nested too deeply"},
      {"layers for ever", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000000", "from 1 to 1000"},
  };
  for (const auto& spoilt : all) {
    replace("config.json", spoilt.replaced, spoilt.by);
    EXPECT_THAT(error(), HasSubstr(spoilt.says)) << spoilt.what;
    EXPECT_THAT(error(), HasSubstr("config.json")) << spoilt.what;
    write("config.json", whole);
  }
  fs::remove(file("config.json"));
  EXPECT_THAT(error(), HasSubstr("no config.json"));
}

TEST_F(BertFolderTest, RefusesOptionsThatCannotBe) {
  EXPECT_THAT(error({{"num_attention_heads", "3"}}), HasSubstr("model.options"));
  EXPECT_THAT(error({{"hidden_dropout_prob", "much"}}), HasSubstr("a number, not 'much'"));
  EXPECT_THAT(error({{"hidden_size", "16"}}), HasSubstr("remove sizes from model.options"));
}

TEST_F(BertFolderTest, RefusesWeightsOfAnotherModel) {
  const auto whole = read("model.safetensors");
  rename([](const std::string& name) { return name.ends_with("query.bias") ? "" : name; });
  EXPECT_THAT(error(), HasSubstr("missing: bert.encoder.layer.0.attention.self.query.bias, "
                                 "bert.encoder.layer.1.attention.self.query.bias"));
  write("model.safetensors", whole);
  rename([](const std::string& name) { return "roberta." + name; });
  EXPECT_THAT(error(), HasSubstr("more"));
  write("model.safetensors", whole);
  EXPECT_THAT(error({{"num_hidden_layers", "1"}}), HasSubstr("not in the model: bert.encoder.layer.1."));
  auto state = read_safetensors(file());
  put(state, "bert.pooler.dense.weight", at::zeros({8, 9}));
  write_safetensors(file(), state);
  EXPECT_THAT(error(), HasSubstr("bert.pooler.dense.weight: Float [8, 9] in the file, [8, 8] in the model"));
  put(state, "bert.pooler.dense.weight", at::zeros({8, 8}, at::kLong));
  write_safetensors(file(), state);
  EXPECT_THAT(error(), HasSubstr("bert.pooler.dense.weight: Long"));
}

TEST_F(BertFolderTest, BeginsANewClassifierForOtherClassesWhereItIsTold) {
  auto state = read_safetensors(file());
  put(state, "classifier.weight", at::zeros({2, 8}));
  put(state, "classifier.bias", at::zeros({2}));
  write_safetensors(file(), state);
  EXPECT_THAT(error(), HasSubstr("classifier.weight: Float [2, 8] in the file, [3, 8] in the model"));
  EXPECT_THAT(error(), HasSubstr("set model.options.new_classifier to true"));
  EXPECT_EQ(load({{"new_classifier", "true"}})->forward(text()).size(1), kClasses);
}

TEST_F(BertFolderTest, RefusesDamagedWeights) {
  const auto whole = read("model.safetensors");
  for (const size_t length : {size_t{0}, size_t{5}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write("model.safetensors", whole.substr(0, length));
    EXPECT_THAT(error(), HasSubstr("model.safetensors")) << length;
  }
  write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 440449768\n");
  EXPECT_THAT(error(), HasSubstr("git lfs pull"));
  write("model.safetensors", whole);
  write_pt(file("pytorch_model.bin"), read_safetensors(file()));
  const auto packed = read("pytorch_model.bin");
  fs::remove(file());
  for (const size_t length : {size_t{0}, packed.size() / 2, packed.size() - 1}) {
    write("pytorch_model.bin", packed.substr(0, length));
    EXPECT_THAT(error(), HasSubstr("pytorch_model.bin")) << length;
  }
  fs::remove(file("pytorch_model.bin"));
  EXPECT_THAT(error(), HasSubstr("neither model.safetensors nor pytorch_model.bin"));
}

TEST(Bert, RefusesWhatIsNoTextOfItsVocabulary) {
  const auto net = small_bert();
  const auto error = [&](const at::Tensor& input) { return test::refusal_of([&] { net->forward(input); }); };
  EXPECT_THAT(error(at::zeros({2, 3, 4})), HasSubstr("Float [2, 3, 4]"));
  EXPECT_THAT(error(at::zeros({2, 4}, at::kLong)), HasSubstr("int64 [n, 3, tokens]"));
  EXPECT_THAT(error(text(13)), HasSubstr("13 tokens, but the model takes at most 12"));
  EXPECT_THAT(error(text() + 19), HasSubstr("token 23 is not among the model's 20"));
  EXPECT_THAT(error(text() - 1), HasSubstr("token -1"));
  EXPECT_THAT(error(at::ones({1, 3, 4}, at::kLong) * 2), HasSubstr("token type 2"));
  EXPECT_EQ(error(text(12)), "");
  EXPECT_EQ(net->forward(text().expand({4, 3, 5})).sizes(), (std::vector<int64_t>{4, kClasses}));
}

TEST(Bert, TakesTextAlone) {
  EXPECT_THROW(make_model({.name = "bert"}, "", {1, 28, 28}, 10), InputError);
  EXPECT_THROW(make_model({.name = "bert"}, "", {8}, 2), InputError);
}

TEST(Bert, IsBlindToWhatItsMaskLeavesOut) {
  const auto net = small_bert();
  auto longer = at::cat({text(5), at::zeros({1, 3, 3}, at::kLong)}, 2);
  longer[0][0].slice(0, 5).fill_(7);
  EXPECT_TRUE(at::allclose(net->forward(longer), net->forward(text(5)), 1e-5, 1e-6));
  longer[0][2].fill_(1);
  EXPECT_FALSE(at::allclose(net->forward(longer), net->forward(text(5)), 1e-5, 1e-6));
}

}  // namespace
}  // namespace lockstep
