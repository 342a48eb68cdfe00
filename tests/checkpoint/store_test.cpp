#include "lockstep/checkpoint/store.h"
#include "lockstep/base/files/checkpoint_files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/checkpoint/pt.h"
#include "temp.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::small_checkpoint;
using test::TempFolder;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

double weight_of(const FoundCheckpoint& found) {
  return get(get(found.tree, "model"), "weight").toTensor()[0][0].item<double>();
}

/// No file may grow beyond `bytes`: what a full disk is to a writer. SIGXFSZ would end the program.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(Store, TheBestOutlivesThePruningAndIsNotTheLatest) {
  const TempFolder folder;
  const CheckpointStore store(folder / "checkpoints", 1);
  store.save(small_checkpoint(100), CheckpointStore::Name::both);
  store.save(small_checkpoint(200));
  EXPECT_EQ(names_in(store.folder()), (std::vector<std::string>{"best.pt", "step-00000200.pt"}));
  EXPECT_EQ(as_int(get(read_pt(store.best_path()), "iter_no"), "iter_no"), 100);
  EXPECT_EQ(store.save(small_checkpoint(300), CheckpointStore::Name::best), store.best_path());
  EXPECT_EQ(as_int(get(read_pt(store.best_path()), "iter_no"), "iter_no"), 300);
  EXPECT_EQ(names_in(store.folder()), (std::vector<std::string>{"best.pt", "step-00000200.pt"}));
  EXPECT_EQ(store.latest()->step, 200);
  store.save(small_checkpoint(400), CheckpointStore::Name::both);
  EXPECT_EQ(as_int(get(read_pt(store.best_path()), "iter_no"), "iter_no"), 400);
}

TEST(Store, KeepsAndNamesThoseOfTheHighestSteps) {
  const TempFolder folder;
  const CheckpointStore store(folder / "checkpoints", 2);
  EXPECT_FALSE(store.latest().has_value());
  for (const auto step : {100, 200, 1000}) store.save(small_checkpoint(step));
  fs::last_write_time(store.path_of(200), fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(names_in(store.folder()), (std::vector<std::string>{"step-00000200.pt", "step-00001000.pt"}));
  EXPECT_EQ(store.latest()->step, 1000);
  EXPECT_EQ(weight_of(*store.latest()), 1000);
}

TEST(Store, PassesOverDamagedFiles) {
  const TempFolder folder;
  const CheckpointStore store(folder.path(), 0);
  for (const auto step : {1, 2, 3, 4, 5}) store.save(small_checkpoint(step));
  fs::resize_file(store.path_of(5), fs::file_size(store.path_of(5)) / 2);
  auto bytes = base::read_text(store.path_of(4));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  folder.write("step-00000004.pt", bytes);
  folder.write("step-00000003.pt", "");
  folder.write("step-00000099.pt", test::pt_bytes(make_dict({{"no step", int64_t{1}}})));
  folder.write("step-nonsense.pt", "x");
  testing::internal::CaptureStderr();
  const auto found = store.latest();
  const auto said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 2);
  for (const char* name : {"step-00000003", "step-00000004", "step-00000005", "step-00000099"})
    EXPECT_NE(said.find(name), std::string::npos) << said;
}

TEST(Store, WhatIsThereAndNotWholeIsNeverTakenForNone) {
  const TempFolder folder;
  const CheckpointStore store(folder.path(), 0);
  folder.write("step-00000003.pt", "");
  fs::create_directory(folder / "step-00000004.pt");
  testing::internal::CaptureStderr();
  EXPECT_THROW(store.latest(), InputError);
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("step-00000003.pt"), std::string::npos) << said;
  EXPECT_NE(said.find("step-00000004.pt"), std::string::npos) << said;
}

TEST(Store, AFileThatTheSystemCannotReadIsAnErrorUnlessANewerOneIsWhole) {
  const TempFolder folder;
  const CheckpointStore store(folder.path(), 0);
  store.save(small_checkpoint(5));
  fs::create_symlink("step-00000009.pt", folder / "step-00000009.pt");  // ELOOP, for root too
  EXPECT_THROW(store.latest(), InputError) << "step 9 may be whole";
  store.save(small_checkpoint(10));
  EXPECT_EQ(store.latest()->step, 10);
}

TEST(Store, NothingIsPutInPlaceOrPrunedWhereTheFolderIsNoLongerOurs) {
  const TempFolder folder;
  int calls = 0, allowed = 1000;
  const CheckpointStore store(folder.path(), 1, [&] {
    if (++calls > allowed) throw Error("not ours");
  });
  store.save(small_checkpoint(1));
  const int checks = calls;
  for (allowed = 0; allowed < checks; ++allowed) {
    calls = 0;
    EXPECT_THROW(store.save(small_checkpoint(2)), Error);
    EXPECT_TRUE(fs::exists(store.path_of(1))) << "pruned after check " << allowed;
    EXPECT_EQ(fs::exists(store.path_of(2)), allowed == checks - 1) << "renamed after check " << allowed;
  }
}

TEST(Store, AFullDiskLeavesTheLastCheckpointWhole) {
  const TempFolder folder;
  const CheckpointStore store(folder.path(), 1);
  store.save(small_checkpoint(1));
  for (const rlim_t bytes : {1, 200, 1000, 1500}) {
    const SmallDisk disk(bytes);
    EXPECT_THROW(store.save(small_checkpoint(2)), Error) << bytes;
  }
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"step-00000001.pt"}));
  EXPECT_EQ(store.latest()->step, 1);
  EXPECT_THROW(CheckpointStore("/proc/nowhere").save(small_checkpoint(1)), Error) << "read-only";
}

TEST(Store, RemovesWhatKilledWritersLeft) {
  const TempFolder folder;
  folder.write(".step-00000007.pt.4242.partial", "half");
  folder.write("notes.txt", "mine");
  const CheckpointStore store(folder.path());
  EXPECT_FALSE(store.latest().has_value());
  base::remove_leftovers(folder.path());
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"notes.txt"}));
}

TEST(Writer, SavesWhatWasSubmitted) {
  const TempFolder folder;
  CheckpointStore store(folder.path());
  CheckpointWriter writer([&] { return store; });
  const auto tree = small_checkpoint(3);
  writer.submit(tree);
  get(get(tree, "model"), "weight").toTensor().zero_();
  writer.wait();
  EXPECT_TRUE(writer.idle());
  EXPECT_EQ(weight_of(*store.latest()), 3) << "the snapshot, not what came later";
}

TEST(Writer, TellsOfEachWholeCheckpointAndAsksWhereToPutIt) {
  const TempFolder folder;
  std::string where = folder / "a", last;
  CheckpointWriter writer([&] { return CheckpointStore(where); }, [&](const auto& path) { last = path; });
  writer.submit(small_checkpoint(1));
  writer.wait();
  EXPECT_EQ(last, CheckpointStore(where).path_of(1));
  where = folder / "b";
  writer.submit(small_checkpoint(2));
  writer.wait();
  EXPECT_EQ(last, CheckpointStore(where).path_of(2));
}

TEST(Writer, ErrorsSurfaceOnceAndItGoesOn) {
  const TempFolder folder;
  folder.write("file", "");
  CheckpointWriter broken([&] { return CheckpointStore(folder / "file"); });
  broken.submit(small_checkpoint(1));
  EXPECT_THROW(broken.submit(small_checkpoint(2)), Error);
  EXPECT_NO_THROW(broken.wait());
  broken.submit(small_checkpoint(3));
  EXPECT_THROW(broken.wait(), Error);
  EXPECT_NO_THROW(broken.wait());
}

TEST(Writer, WritesTheLastOneBeforeItGoes) {
  const TempFolder folder;
  CheckpointStore store(folder.path());
  CheckpointWriter([&] { return store; }).submit(small_checkpoint(9));
  EXPECT_EQ(store.latest()->step, 9);
}

}  // namespace
}  // namespace lockstep
