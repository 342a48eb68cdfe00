#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cmath>
#include <numeric>

#include "lockstep/models/model.h"
#include "lockstep/tasks/task.h"
#include "peer.h"
#include "refusal.h"

namespace lockstep {
namespace {

// The sections of a config that a task may read.
struct Sections {
  TaskSettings task;
  DataSettings data;
  ModelSettings model;
  int64_t seed = 0;

  operator TaskConfig() const { return {task, data, model, seed, true}; }
};

Batch all_of(const Dataset& set) {
  std::vector<int64_t> indices(set.size());
  std::iota(indices.begin(), indices.end(), 0);
  return set.get(indices);
}

std::string refusal(const Sections& settings) {
  return test::error_from([&] { make_task(settings)->data(settings, {}); }).what();
}

// What eval does with a checkpoint's memory: the same set, without the file that was trained on.
void expect_same_evaluation(const Sections& settings, const std::vector<std::string>& trained_on) {
  auto task = make_task(settings);
  const auto data = task->data(settings, {});
  TaskData known;
  known.input_shape = data.input_shape;
  known.class_names = data.class_names;
  known.regression = data.regression;
  known.label_scale = data.label_scale;
  auto again = make_task(settings);
  again->recall(*task->memory());
  for (const auto& file : trained_on) std::filesystem::remove(file);
  const auto set = again->evaluation(settings, known, {});
  ASSERT_TRUE(set);
  ASSERT_GT(set->size(), 0);
  EXPECT_TRUE(at::equal(all_of(*set).input, all_of(*data.eval).input));
  EXPECT_TRUE(at::equal(all_of(*set).target, all_of(*data.eval).target));
}

struct OwnTable : testing::Test {
  OwnTable() {
    settings.task.name = "csv";
    settings.task.file =
        folder.write("t.csv", "a,b,kind\n1,10,cat\n2,10,dog\n3,10,cat\n4,10,dog\n5,10,cat\n6,10,dog\n");
    settings.task.eval_fraction = 0;
  }
  test::TempFolder folder;
  Sections settings;
};

TEST_F(OwnTable, StandardisesAndKeepsAConstantColumnFinite) {
  const auto data = make_task(settings)->data(settings, {});
  const auto x = all_of(*data.train).input;
  EXPECT_NEAR(x.select(1, 0).mean().item<float>(), 0, 1e-6);
  EXPECT_NEAR(x.select(1, 0).std(false).item<float>(), 1, 1e-6);
  EXPECT_TRUE(at::equal(x.select(1, 1), at::zeros({6})));
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(data.eval->size(), 0);
}

TEST_F(OwnTable, EvaluatesOnAFileOfItsOwnWithTheTrainingSetsTreatment) {
  settings.task.eval_file = folder.write("e.csv", "a,b,kind\n3.5,10,dog\n");
  const auto data = make_task(settings)->data(settings, {});
  EXPECT_EQ(data.train->size(), 6);
  const auto eval = all_of(*data.eval);
  EXPECT_NEAR(eval.input[0][0].item<float>(), 0, 1e-6);
  EXPECT_EQ(eval.target[0].item<int64_t>(), 1);
  settings.task.eval_file = folder.write("e.csv", "a,b,kind\n3.5,10,cow\n");
  EXPECT_TRUE(test::has(refusal(settings), "'cow' is not one of the 2 classes"));
}

TEST_F(OwnTable, ReadsNewRowsWithOrWithoutTheLabel) {
  auto task = make_task(settings);
  const auto data = task->data(settings, {});
  const auto read = [&](const std::string& text) {
    return all_of(*task->inputs(settings, data, folder.write("new.csv", text))).input;
  };
  const auto labelled = read("a,b,kind\n2,10,dog\n");
  EXPECT_TRUE(at::equal(labelled, all_of(*data.train).input.slice(0, 1, 2)));
  EXPECT_TRUE(at::equal(labelled, read("b,a\n10,2\n")));
  EXPECT_TRUE(at::equal(labelled, read("x,kind,b,a\n?,?,10,2\n")));
  EXPECT_THROW(read("b,c,d\n10,2,3\n"), InputError);
  EXPECT_THROW(read("c,d\n10,2\n"), InputError);
}

TEST_F(OwnTable, RefusesWhatCannotBeTrainedOn) {
  settings.task.file = folder.write("t.csv", "a,kind\n1,cat\n2,cat\n");
  EXPECT_TRUE(test::has(refusal(settings), "nothing to learn"));
  settings.task.file = "";
  EXPECT_TRUE(test::has(refusal(settings), "needs a file"));
  settings.task.file = folder.write("t.csv", "a,kind\n1,cat\n2,dog\n");
  settings.task.normalize = "mean_std";
  settings.task.mean = settings.task.std = {1, 2};
  EXPECT_TRUE(test::has(refusal(settings), "the table has 1 features"));
}

std::string idx(const std::vector<int>& sizes, const std::string& bytes) {
  std::string text = std::string("\0\0\x08", 3) + static_cast<char>(sizes.size());
  for (int size : sizes) text += std::string("\0\0\0", 3) + static_cast<char>(size);
  return text + bytes;
}

TEST(OwnImages, AreNormalizedByTheTrainingImages) {
  test::TempFolder folder;
  Sections settings;
  settings.task.name = "idx";
  settings.data.root = folder.path();
  folder.write("ti", idx({2, 1, 2}, std::string("\0\x01\x02\x03", 4)));
  folder.write("tl", idx({2}, std::string("\0\x02", 2)));
  folder.write("ei", idx({1, 1, 2}, "\x01\x02"));
  folder.write("el", idx({1}, "\x01"));
  settings.task.images = {"ti", "ei"};
  settings.task.labels = {"tl", "el"};
  const auto data = make_task(settings)->data(settings, {});
  const auto x = all_of(*data.train).input;
  EXPECT_NEAR(x.mean().item<float>(), 0, 1e-6);
  EXPECT_NEAR(x.std(false).item<float>(), 1, 1e-5);
  EXPECT_EQ(data.class_names.size(), 3);
  EXPECT_EQ(make_task(settings)->model(settings, data)->forward(x).size(1), 3);
  settings.task.normalize = "none";
  EXPECT_FLOAT_EQ(all_of(*make_task(settings)->data(settings, {}).train).input.max().item<float>(),
                  3.f / 255);

  folder.write("el", idx({2}, "\x01\x01"));
  EXPECT_TRUE(test::has(refusal(settings), "1 images but 2 labels"));
  folder.write("ei", idx({2, 2, 1}, "\x01\x02\x03\x04"));
  EXPECT_TRUE(test::has(refusal(settings), "differ in size"));
  settings.task.images = {"ti"};
  EXPECT_TRUE(test::has(refusal(settings), "two files of images"));
}

TEST(Tasks, SayWhatIsThere) {
  Sections settings;
  settings.task.name = "minst";
  EXPECT_THROW(make_task(settings), InputError);
  EXPECT_THROW(make_model({.name = "simple_cmm", .path = {}, .hidden = {}}, "mlp", {8}, 2), InputError);
  EXPECT_THROW(make_model({.name = "simple_cnn", .path = {}, .hidden = {}}, "mlp", {8}, 2), InputError);
  EXPECT_EQ(make_model({}, "pima_net", {8}, 2)->parameters().size(), 6);
}

TEST_F(OwnTable, PredictsANumberWhereItIsToldTo) {
  settings.task.file = folder.write("t.csv", "a,price\n1,10.5\n2,11\n3,12.25\n4,13\n");
  settings.task.kind = "regression";
  settings.task.eval_fraction = 0.25;
  auto task = make_task(settings);
  const auto data = task->data(settings, {});
  EXPECT_TRUE(data.regression);
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"price"}));
  EXPECT_EQ(data.train->size(), 3);
  const auto batch = all_of(*data.train);
  EXPECT_EQ(batch.target.sizes(), (std::vector<int64_t>{3, 1}));
  const auto output = task->model(settings, data)->forward(batch.input);
  EXPECT_EQ(output.size(1), 1);
  EXPECT_TRUE(at::equal(task->loss(output, batch.target, {}), at::mse_loss(output, batch.target)));
  EXPECT_EQ(task->metrics(data)->values()[1].first, "mse");
}

TEST_F(OwnTable, SaysWhichColumnIsTheLabel) {
  settings.task.file = folder.write("t.csv", "class,a,b\n0,1,10\n1,2,11\n0,3,12\n1,4,13\n");
  const auto data = make_task(settings)->data(settings, {});
  EXPECT_EQ(data.label, "class");
  EXPECT_EQ(data.notes[0], "label: class (column 0)");
  EXPECT_EQ(data.input_shape, (std::vector<int64_t>{2}));
  settings.task.label = "-1";
  settings.task.kind = "regression";
  EXPECT_EQ(make_task(settings)->data(settings, {}).label, "b");
}

struct LargeNumbers : OwnTable {
  LargeNumbers() {
    settings.task.file = folder.write("t.csv", "a,price\n1,100000\n2,300000\n3,500000\n4,700000\n");
    settings.task.eval_file = folder.write("e.csv", "a,price\n1,400000\n2,900000\n");
    settings.task.kind = "regression";
  }
};

TEST_F(LargeNumbers, AreLearnedByTheTrainingRowsMeanAndDeviation) {
  const auto task = make_task(settings);
  const auto data = task->data(settings, {});
  ASSERT_TRUE(data.label_scale);
  EXPECT_DOUBLE_EQ(data.label_scale->mean, 400'000);
  EXPECT_DOUBLE_EQ(data.label_scale->std, std::sqrt(5e10));
  const auto target = all_of(*data.train).target;
  EXPECT_NEAR(target.mean().item<float>(), 0, 1e-6);
  EXPECT_NEAR(target.std(false).item<float>(), 1, 1e-6);
  EXPECT_EQ(all_of(*data.eval).target[0].item<float>(), 0);
  EXPECT_TRUE(test::has(data.notes[1], "100000 to 700000, mean 400000"));
  const auto metrics = task->metrics(data);
  metrics->add(at::zeros({1, 1}), at::ones({1, 1}), {0}, {1, 1});
  EXPECT_FLOAT_EQ(metrics->values()[1].second, 5e10) << "mse in the label's own unit";
  EXPECT_FLOAT_EQ(metrics->values()[2].second, std::sqrt(5e10));
  expect_same_evaluation(settings, {settings.task.file});
}

TEST_F(LargeNumbers, AreAlikeOrAsTheyAreWhereThatIsAsked) {
  const auto target = [this] { return all_of(*make_task(settings)->data(settings, {}).train).target; };
  settings.task.normalize = "none";
  EXPECT_EQ(target()[1].item<float>(), 300'000);
  settings.task.normalize = "standard";
  settings.task.normalize_label = "none";
  EXPECT_EQ(target()[1].item<float>(), 300'000);
  settings.task.normalize_label = "auto";
  settings.task.file = folder.write("t.csv", "a,price\n1,7\n2,7\n");
  EXPECT_TRUE(at::equal(target(), at::zeros({2, 1}))) << "a constant label does not divide by zero";
}

struct Gaps : OwnTable {
  Gaps() {
    settings.task.file = folder.write("t.csv", "a,b,kind\n1,NA,cat\n3,30,dog\n,20,cat\n2,10,cat\n");
    settings.task.missing = "mean";
    settings.task.normalize = "none";
  }
};

TEST_F(Gaps, AreFilledInWithTheTrainingRowsMean) {
  settings.task.eval_file = folder.write("e.csv", "a,b,kind\n?,,dog\n9,40,cat\n");
  auto task = make_task(settings);
  const auto data = task->data(settings, {});
  EXPECT_EQ(all_of(*data.train).input[0][1].item<float>(), 20);
  EXPECT_EQ(all_of(*data.train).input[2][0].item<float>(), 2);
  EXPECT_TRUE(at::equal(all_of(*data.eval).input[0], at::tensor({2.F, 20.F})));
  EXPECT_TRUE(test::has(data.notes[3], "t.csv: cells without a value: a 1, b 1, filled in"));
  EXPECT_TRUE(test::has(data.notes[4], "e.csv: cells without a value: a 1, b 1, filled in"));
  auto again = make_task(settings);
  again->recall(*task->memory());
  settings.task.missing = "refuse";  // the checkpoint knows
  const auto inputs = again->inputs(settings, data, folder.write("new.csv", "b,a\nNA,7\n"));
  EXPECT_TRUE(at::equal(all_of(*inputs).input[0], at::tensor({7.F, 20.F})));
  settings.task.missing = "mean";
  expect_same_evaluation(settings, {});
}

TEST_F(Gaps, OfCategoriesAreFilledInAndTheirValuesKept) {
  const std::string rows = "1,5;m;True;cat\n2,5;f;-;dog\n3;m;False;cat\n4;;True;dog\n";
  settings.task.file = folder.write("t.csv", "a;sex;big;kind\n" + rows);
  settings.task.eval_file = folder.write("e.csv", "a,sex,big,kind\n9,f,1,dog\n");
  settings.task.categories = {"sex"};
  auto task = make_task(settings);
  const auto data = task->data(settings, {});
  EXPECT_EQ(data.input_shape, (std::vector<int64_t>{4}));
  EXPECT_TRUE(all_of(*data.train)
                  .input.allclose(at::tensor({1.5, 0., 1., 1., 2.5, 1., 0., 2. / 3, 3., 0., 1., 0., 4.,
                                              1. / 3, 2. / 3, 1.})
                                      .view({4, 4})
                                      .to(at::kFloat)));
  EXPECT_TRUE(test::has(data.notes[3], "t.csv: columns are separated by ';', numbers have decimal commas"));
  auto again = make_task(settings);
  again->recall(*task->memory());
  settings.task.categories = {};  // the checkpoint knows
  const auto inputs = again->inputs(settings, data, folder.write("new.csv", "big,sex,a\nTRUE,m,7\n"));
  EXPECT_TRUE(at::equal(all_of(*inputs).input[0], at::tensor({7.F, 0.F, 1.F, 1.F})));
  EXPECT_THROW(again->inputs(settings, data, folder.write("x.csv", "big,sex,a\n1,x,7\n")), InputError);
  settings.task.categories = {"sex"};
  expect_same_evaluation(settings, {settings.task.file});
}

TEST_F(Gaps, AreLeftOutAndCounted) {
  settings.task.missing = "drop";
  settings.task.eval_file = folder.write("e.csv", "a,b,kind\n1,,dog\n9,40,cat\n");
  const auto data = make_task(settings)->data(settings, {});
  EXPECT_EQ(data.train->size(), 2);
  EXPECT_EQ(data.eval->size(), 1);
  EXPECT_TRUE(test::has(data.notes[3], "t.csv: 2 of 4 rows omitted, cells without a value: a 1, b 1"));
  EXPECT_TRUE(test::has(data.notes[4], "e.csv: 1 of 2 rows omitted, cells without a value: b 1"));
  const auto task = make_task(settings);
  const auto same = task->data(settings, {});
  EXPECT_THROW(task->inputs(settings, same, folder.write("new.csv", "a,b\n1,?\n")), InputError);
}

TEST_F(OwnTable, EvaluatesFromItsMemoryWithoutTheTrainingSet) {
  settings.task.eval_fraction = 0.4;
  expect_same_evaluation(settings, {});  // a part of the one file, which is read
  settings.task.eval_file = folder.write("e.csv", "b,a,kind\n10,3.5,dog\n10,4,cat\n");
  EXPECT_THROW(make_task(settings)->data(settings, {}), InputError) << "the order of columns";
  settings.task.eval_file = folder.write("e.csv", "a,b,kind\n3.5,10,dog\n4,10,cat\n");
  expect_same_evaluation(settings, {settings.task.file});
}

}  // namespace
}  // namespace lockstep
