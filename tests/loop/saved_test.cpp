#include "trainer/setup/saved.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/checkpoint/store.h"
#include "temp_folder.h"
#include "trainer/run_folder/status.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

class NewestSaved : public ::testing::Test {
 protected:
  NewestSaved() { fs::create_directory(checkpoints()); }
  fs::path checkpoints() const { return scratch_.path() / "checkpoints"; }
  std::optional<Saved> look() const {
    return newest_saved(Team({}, nullptr, at::kCPU), scratch_.path().string());
  }
  test::TempFolder scratch_;
};

TEST_F(NewestSaved, ARunThatCameToNoneStartsAnew) {
  EXPECT_FALSE(look());
  fs::remove(checkpoints());
  EXPECT_FALSE(look());
  run_folder::write_status(scratch_.path(), {});
  EXPECT_FALSE(look());
}

TEST_F(NewestSaved, IsTheNewestWholeOne) {
  CheckpointStore(checkpoints()).save(make_dict({{"iter_no", int64_t{7}}}));
  base::replace_file(checkpoints() / "step-00000009.pt", "damaged");
  EXPECT_EQ(look()->path, checkpoints() / "step-00000007.pt");
}

TEST_F(NewestSaved, NeverStartsAnewOverCheckpointsThatAreDamagedOrGone) {
  base::replace_file(checkpoints() / "step-00000009.pt", "damaged");
  EXPECT_THROW(look(), InputError);
  fs::remove(checkpoints() / "step-00000009.pt");
  run_folder::RunStatus status;
  status.checkpoint = "checkpoints/step-00000009.pt";
  run_folder::write_status(scratch_.path(), status);
  EXPECT_THROW(look(), InputError);
}

}  // namespace
}  // namespace lockstep::train
