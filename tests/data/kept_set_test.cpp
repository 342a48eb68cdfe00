#include "lockstep/data/kept_set.h"

#include <ATen/ATen.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "peer.h"

namespace lockstep::data {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kHead = 48;  // bytes: magic, version, the table's and the file's bytes, two sums

struct KeptSet : testing::Test {
  test::TempFolder folder;
  std::string source = folder.write("a.csv", "text,label\n"), kept = folder / "a.tokens";

  static SharedSet some(int64_t first = 0) {
    return {{at::arange(first, first + 1000, at::kInt), at::arange(3, at::kLong),
             at::tensor({1.5, 2.5}, at::kFloat).view({2, 1}), at::empty({0}, at::kInt)},
            "known"};
  }
  bool found(const std::string& key = "key") {
    return find_kept(kept, key, OriginalFile(source)).has_value();
  }
  void keep() { keep_set(kept, "key", OriginalFile(source), some()); }
  std::string bytes() const {
    std::ifstream file(kept, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(KeptSet, ComesBackAsItWas) {
  EXPECT_FALSE(found());
  keep();
  const auto wanted = some();
  for (const auto& set :
       {*find_kept(kept, "key", OriginalFile(source)), map_kept(kept, OriginalFile(source))}) {
    EXPECT_EQ(set.text, wanted.text);
    ASSERT_EQ(set.tensors.size(), wanted.tensors.size());
    for (size_t i = 0; i < set.tensors.size(); ++i) {
      EXPECT_TRUE(at::equal(set.tensors[i], wanted.tensors[i])) << i;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(set.tensors[i].const_data_ptr()) % 64, 0U);
    }
  }
}

TEST_F(KeptSet, ThatIsCutWhileItIsReadIsAnErrorOfTheNextBatch) {
  keep_set(kept, "key", OriginalFile(source), {{at::arange(100'000, at::kFloat).view({-1, 10})}, ""});
  struct Rows : Dataset {
    at::Tensor all;
    explicit Rows(at::Tensor tensor) : all(std::move(tensor)) {}
    int64_t size() const override { return all.size(0); }
    Batch get(at::ArrayRef<int64_t> rows, bool) const override {
      Batch batch;
      batch.input = all.index_select(0, at::tensor(rows, at::kLong));
      return batch;
    }
  };
  const auto rows = std::make_shared<Rows>(map_kept(kept, OriginalFile(source)).tensors[0]);
  const ShardSampler sampler(rows->size(), 0, 1);
  Loader loader(rows, sampler, {.batch_size = 100});
  auto batch = loader.begin();
  fs::resize_file(kept, 5000);
  EXPECT_THROW(while (batch != loader.end())++ batch, Error);
  EXPECT_FALSE(found());
}

TEST_F(KeptSet, IsNotReadWhereOneByteIsWrongOrMissing) {
  keep();
  const auto whole = bytes();
  for (size_t at = 0; at < whole.size(); at += at < 400 ? 1 : 97) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder.write("a.tokens", damaged);
    EXPECT_FALSE(found()) << at;
  }
  for (size_t size = 0; size < whole.size(); size += 61) {
    folder.write("a.tokens", whole.substr(0, size));
    EXPECT_FALSE(found()) << size;
  }
  folder.write("a.tokens", whole + "more");
  EXPECT_FALSE(found());
  folder.write("a.tokens", "somebody's notes, which are long enough to hold a head and more than that");
  EXPECT_FALSE(found());
  fs::remove(kept);
  fs::create_directory(kept);
  EXPECT_FALSE(found());
}

// Sums that are right, and any number in the place of any other.
TEST_F(KeptSet, NoTableLeadsOutOfTheFile) {
  keep();
  const auto whole = bytes();
  int64_t table_bytes = 0;
  std::memcpy(&table_bytes, whole.data() + 24, sizeof table_bytes);
  for (int64_t at = kHead; at + 8 <= kHead + table_bytes; ++at) {
    for (const int64_t evil : {int64_t{-1}, int64_t{99}, int64_t{1} << 40, INT64_MAX, INT64_MIN}) {
      auto crafted = whole;
      std::memcpy(crafted.data() + at, &evil, sizeof evil);
      const auto sum = static_cast<uint32_t>(::crc32_z(
          0, reinterpret_cast<const Bytef*>(crafted.data() + kHead), static_cast<size_t>(table_bytes)));
      std::memcpy(crafted.data() + 40, &sum, sizeof sum);
      folder.write("a.tokens", crafted);
      const auto set = find_kept(kept, "key", OriginalFile(source));
      for (const auto& tensor : set ? set->tensors : std::vector<at::Tensor>{}) tensor.sum();
    }
  }
}

TEST_F(KeptSet, IsNotBelievedWhereOthersMayWriteIt) {
  keep();
  for (const mode_t rights : {0664, 0646}) {
    fs::permissions(kept, fs::perms(rights));
    EXPECT_FALSE(found()) << std::oct << rights;
    EXPECT_THROW(map_kept(kept, OriginalFile(source)), Error);
  }
  fs::permissions(kept, fs::perms(0644));
  EXPECT_TRUE(found());
}

TEST_F(KeptSet, SaysWhereItCannotBeWritten) {
  EXPECT_THROW(keep_set(folder / "none/a.tokens", "key", OriginalFile(source), some()), Error);
}

TEST_F(KeptSet, IsNotKeptForAFileThatChangedMeanwhile) {
  const OriginalFile origin(source);
  folder.write("a.csv", "text,label\nmore,x\n");
  EXPECT_THROW(keep_set(kept, "key", origin, some()), Error);
  EXPECT_FALSE(fs::exists(kept));
}

TEST_F(KeptSet, IsWholeWhileManyWriteIt) {
  keep();
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    for (int i = 0; i < 50; ++i) {
      keep();
      if (!found()) ::_exit(1);
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) files += entry.is_regular_file();
  EXPECT_EQ(files, 2) << "temporary files are left";
}

}  // namespace
}  // namespace lockstep::data
