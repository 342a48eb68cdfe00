#include "lockstep/data/npy.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/data/csv.h"
#include "peer.h"

namespace lockstep {
namespace {

TEST(Npy, NumbersHaveNumpysBitsAndWhatIsNoTableIsRefused) {
  const test::TempFolder folder;
  Arena heap;
  const auto read = [&](const std::string& path, MissingValues missing = MissingValues::refuse) {
    return read_csv(path, {.header = data::has_named_arrays(path), .missing = missing}, heap);
  };
  LOCKSTEP_PYTHON_OR_SKIP(python, "numpy");
  test::output_of(python + " tests/data/npy_peer.py " + folder.path().string());
  int good = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "good")) {
    const auto& path = entry.path();
    if (path.extension() == ".f32") continue;
    ++good;
    const auto table = read(path);
    const auto expected = base::read_text(path.string() + ".f32");
    const std::string_view ours(static_cast<const char*>(table.features.const_data_ptr()),
                                table.features.nbytes());
    EXPECT_TRUE(ours == expected) << path << "\n" << table.features;
    const bool named = path.extension() == ".npz";
    EXPECT_TRUE(at::equal(table.labels, named ? at::tensor({1, 0, 1}) : at::tensor({0, 1, 0}))) << path;
    EXPECT_EQ(table.columns, named ? std::vector<std::string>({"x.0", "x.1", "age", "flag"})
                                   : std::vector<std::string>({"0", "1"}));
  }
  EXPECT_EQ(good, 12 * 2 * 3 + 3);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "bad")) {
    const auto name = entry.path().filename().string();
    try {
      read(entry.path());
      ADD_FAILURE() << name;
    } catch (const InputError& error) {
      EXPECT_TRUE(std::string(error.what()).find(name.substr(0, name.find('|'))) != name.npos)
          << name << ": " << error.what();
    }
  }
  // missing cells are NaN, and a category has the texts of its numbers
  EXPECT_THROW(read(folder / "bad/missing|nan.npy", MissingValues::drop), InputError) << "no row is left";
  const auto categories =
      read_csv(folder / "good/stored.npz", {.label = "flag", .features = {"y"}, .categories = {"y"}}, heap);
  EXPECT_EQ(categories.feature_names(), (std::vector<std::string>{"y=0", "y=1"}));
  EXPECT_EQ(categories.class_names, (std::vector<std::string>{"False", "True"}));
}

}  // namespace
}  // namespace lockstep
