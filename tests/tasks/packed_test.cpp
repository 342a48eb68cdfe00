#include "lockstep/tasks/packed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/tasks/task.h"
#include "peer.h"

namespace lockstep::tasks {
namespace {
namespace fs = std::filesystem;

struct Packed : testing::TestWithParam<std::string> {
  Packed() {
    task.name = GetParam();
    if (task.name == "folder") {
      for (const char* name : {"train/a/1.png", "train/a/2.jpg", "train/a.b/6.png", "train/b/x/3.png",
                               "train/b/4.png", "val/b/5.png"}) {
        const auto path = folder.path() / "images" / name;
        fs::create_directories(path.parent_path());
        fs::copy_file(
            path.extension() == ".jpg" ? "tests/fuzz/seeds/jpeg/plain.jpg" : "tests/fuzz/seeds/png/rgb.png",
            path);
      }
      task.size = {4, 5};
      data.root = folder / "images";
      return;
    }
    std::string train = "x,city,id,id,id_,label\n", eval = train;
    for (const auto* name : {"v", "w", "x", "y", "z"}) {
      train += format("1,ulm,a,9,1,{0}\n,bonn,b,9,2,{0}\n7.1,,c,9,3,{0}\n", name);
      eval += format("2,ulm,a,8,1,{}\n", name);
    }
    task.file = folder.write("train.csv", train);
    task.eval_file = folder.write("eval.csv", eval);
    task.label = "-1";
    if (task.name == "csv") task.categories = {"city"}, task.ignore = {"2", "3"}, task.missing = "mean";
    if (task.name == "text") task.text = {"city"}, task.cache = folder.path();
    folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nulm\nbonn\n");
    task.vocabulary = folder.path();
  }

  TaskConfig config() const { return {task, data, model, /*seed=*/3, /*evaluates=*/true}; }
  void pack(std::string& place) {
    auto made = make_task(config());
    auto& packable = dynamic_cast<PackableTask&>(*made);
    const auto path = place + packable.packed_ending();
    EXPECT_GT(packable.pack(config(), path), 0);
    place = path;
  }
  std::string& place() { return task.name == "folder" ? data.root : task.file; }
  /// Everything that a set has, and what `eval` reads of it.
  std::vector<at::Tensor> content() {
    auto made = make_task(config());
    const auto sets = made->data(config(), {});
    auto again = make_task(config());
    again->recall(*made->memory());
    std::vector<at::Tensor> all;
    for (const auto& set : {sets.train, sets.eval, again->evaluation(config(), sets, {})}) {
      std::vector<int64_t> indices(set->size());
      std::iota(indices.begin(), indices.end(), 0);
      const auto batch = set->get(indices);
      all.insert(all.end(), {batch.input, batch.target});
    }
    about = sets.identity + " " + base::join(sets.class_names, " ") + " " + sets.label + " " +
            base::join(made->memory()->texts, " ");
    return all;
  }

  test::TempFolder folder;
  std::string about;
  TaskSettings task;
  DataSettings data;
  ModelSettings model;
};

TEST_P(Packed, HasTheSameSamples) {
  const auto from = place();
  for (const bool own_eval : {true, false}) {
    if (!own_eval) task.eval_file = "", task.eval_fraction = 0.4, fs::remove_all(folder / "images/val");
    place() = from;
    data.stage = "";
    const auto before = content();
    const auto identity = about;
    data.stage = folder / "stage";  // for training, not for `pack`
    pack(place());
    const auto check = [&](const char* what) {
      const auto after = content();
      EXPECT_EQ(about, identity) << "a run would not resume: " << what;
      EXPECT_TRUE(std::ranges::equal(after, before, at::equal)) << what;
    };
    check("packed");
    EXPECT_TRUE(fs::exists(folder / "stage"));
    if (task.eval_file.empty()) continue;
    const auto train = std::exchange(task.file, task.eval_file);
    pack(task.file);
    task.eval_file = std::exchange(task.file, train);
    check("with a packed file for evaluation");
  }
}

TEST_P(Packed, IsPrivateAndRefusedIfDamagedOrForAnotherTask) {
  fs::permissions(task.name == "folder" ? folder / "images/val/b/5.png" : task.file, fs::perms(0640));
  if (task.name == "folder") {
    fs::create_directory(folder / "images/train/c");
    EXPECT_THROW(pack(place()), InputError) << "a class without images would disappear";
    fs::remove(folder / "images/train/c");
  }
  pack(place());
  EXPECT_EQ(fs::status(place()).permissions(), fs::perms(0600))
      << "since members of the copy's group could read it";
  const auto made_for = task;
  std::vector<std::function<void()>> changes;
  if (task.name == "csv") changes = {[&] { task.name = "text"; }, [&] { task.categories.clear(); }};
  if (task.name == "text")
    changes = {[&] { task.name = "csv"; }, [&] { task.max_length = 7; }, [&] { task.kind = "regression"; },
               [&] { task.text = {"x"}; }, [&] { task.label = "city"; }};
  for (const auto& change : changes) {
    change();
    EXPECT_THROW(content(), InputError) << task.name << task.label;
    task = made_for;
  }
  const auto whole = base::read_text(place()), name = fs::path(place()).filename().string();
  const auto before = content();
  for (size_t at = 0; at < whole.size(); at += 13) {
    folder.write(name, whole.substr(0, at));
    EXPECT_THROW(content(), InputError) << at;
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder.write(name, damaged);
    try {
      const auto now = content();
      // a JPEG may have other pixels, as in a folder
      EXPECT_TRUE(task.name == "folder" || std::ranges::equal(now, before, at::equal)) << at;
    } catch (const InputError&) {
    }
  }
  write_safetensors(place(), make_dict({{"about", at::full({1 << 20}, '[', at::kByte)}}));
  EXPECT_THROW(content(), InputError) << "another program's file";
}

INSTANTIATE_TEST_SUITE_P(, Packed, testing::Values("csv", "text", "folder"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace lockstep::tasks
