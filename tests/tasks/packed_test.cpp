#include "lockstep/tasks/packed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/text.h"
#include "lockstep/tasks/task.h"
#include "peer.h"

namespace lockstep::tasks {
namespace {
namespace fs = std::filesystem;

/// A set of each kind, and the key that names it.
struct Packed : testing::TestWithParam<std::string> {
  Packed() {
    task.name = GetParam();
    if (task.name == "folder") {
      for (const char* name :
           {"train/a/1.png", "train/a/2.jpg", "train/b/x/3.png", "train/b/4.png", "val/b/5.png"}) {
        fs::create_directories(fs::path(folder / name).parent_path());
        fs::copy_file(fs::path("tests/fuzz/seeds") /
                          (name[9] == '.' && name[8] == '2' ? "jpeg/plain.jpg" : "png/rgb.png"),
                      folder / name);
      }
      task.size = {4, 5};
      data.root = folder.path();
      return;
    }
    task.eval_file = folder.write("eval.csv", "x,city,label\n2,ulm,no\n4,bonn,yes\n");
    task.file =
        folder.write("train.csv", "x,city,label\n1,ulm,yes\n,bonn,no\n3,ulm,yes\n5,ulm,no\n7.5,bonn,yes\n");
    if (task.name == "csv") task.categories = {"city"}, task.missing = "mean";
    if (task.name == "text") task.text = {"city"};
    folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nulm\nbonn\n");
    task.vocabulary = folder.path();
  }

  TaskConfig config() const { return {task, data, model, /*seed=*/3, /*evaluates=*/true}; }
  std::string& place() { return task.name == "folder" ? data.root : task.file; }
  void pack() {
    auto made = make_task(config());
    EXPECT_GT(dynamic_cast<PackableTask&>(*made).pack(config(), packed), 0);
    place() = packed;
  }
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
    about = sets.identity + " " + base::join(sets.class_names, " ") + " " + sets.label;
    return all;
  }

  test::TempFolder folder;
  std::string packed = folder / "set.packed", about;
  TaskSettings task;
  DataSettings data;
  ModelSettings model;
};

TEST_P(Packed, HasTheSameSamples) {
  for (const bool own_eval : {true, false}) {
    if (!own_eval) task.eval_file = "", task.eval_fraction = 0.4, fs::remove_all(folder / "val");
    const auto from = place();
    const auto before = content();
    const auto identity = about;
    pack();
    const auto after = content();
    EXPECT_EQ(about, identity) << "a run would not resume";
    EXPECT_TRUE(std::ranges::equal(after, before, at::equal));
    place() = from;
  }
}

TEST_P(Packed, IsReadByTheTaskAndKeysThatItWasMadeFor) {
  const auto private_file = task.name == "folder" ? folder / "val/b/5.png" : task.eval_file;
  fs::permissions(private_file, fs::perms(0600));
  pack();
  EXPECT_EQ(fs::status(packed).permissions(), fs::perms(0600)) << "as its most private file";
  EXPECT_THROW(pack(), InputError) << "a pack of a pack";
  const auto made_for = task;
  std::vector<std::function<void()>> changes = {[&] { task.damaged = "skip"; }};
  if (task.name != "folder")
    changes = {[&] { task.eval_file = "other.csv"; },
               [&] { task.label = "x"; },
               [&] { task.kind = "regression"; },
               [&] { task.name = task.name == "csv" ? "text" : "csv"; },
               [&] { task.categories.clear(), task.max_length = 7; },
               [&] { task.header = false; },
               [&] { task.delimiter = ";"; }};
  for (const auto& change : changes) {
    change();
    EXPECT_THROW(content(), InputError);
    task = made_for;
  }
  const auto whole = base::read_text(packed);
  const auto before = content();
  // images are not in the checksum
  const auto covered = task.name == "folder" ? whole.find("\x89PNG") : whole.size();
  for (size_t at = 0; at < whole.size(); at += 13) {
    folder.write("set.packed", whole.substr(0, at));
    EXPECT_THROW(content(), InputError) << at;
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder.write("set.packed", damaged);
    try {
      const auto now = content();
      EXPECT_TRUE(at >= covered || std::ranges::equal(now, before, at::equal)) << at;
    } catch (const InputError&) {
    }
  }
  write_safetensors(packed, make_dict({{"a", at::ones({1})}}));
  EXPECT_THROW(content(), InputError) << "another program's file";
  write_safetensors(packed, make_dict({{"lockstep_pack", at::full({1 << 20}, 0x91, at::kByte)}}));
  EXPECT_THROW(content(), InputError) << "lists in lists";
  folder.write("set.packed", whole);
  Arena arena;
  const std::map<std::string, std::string> kinds = {
      {"csv", "a table"}, {"text", "texts"}, {"folder", "images"}};
  for (const char* fact : {"notes", "train", "tables", "vocabulary", "label"})
    read_packed(packed, kinds.at(task.name), arena, [&](const PackedSet& set) {
      auto wrong = set;
      if (!wrong.facts.contains(fact)) return;
      wrong.facts[fact] = 1.5;
      write_packed(packed, wrong, 0600);
      EXPECT_THROW(content(), InputError) << fact;
      write_packed(packed, set, 0600);
    });
}

TEST_P(Packed, IsEvaluatedOnAnotherFile) {
  pack();
  auto made = make_task(config());
  const auto sets = made->data(config(), {});
  if (task.name == "folder") return;
  task.eval_file = folder.write("new.csv", "x,city,label\n2,ulm,no\n");
  EXPECT_EQ(made->evaluation(config(), sets, {})->size(), 1);
}

INSTANTIATE_TEST_SUITE_P(, Packed, testing::Values("csv", "text", "folder"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace lockstep::tasks
