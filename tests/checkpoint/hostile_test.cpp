// Files that are damaged or mean harm: each one is an InputError, never a crash, never a wrong answer.

#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/unpickle.h"
#include "lockstep/checkpoint/zip.h"
#include "refusal.h"
#include "temp.h"

namespace lockstep {
namespace {

using namespace std::string_literals;
using test::TempFolder;

constexpr int kRounds = 400;

Tree unpickled(const std::string& pickle) {
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(pickle.data()), pickle.size());
  checkpoint::Cursor input(bytes, "pickle");
  return checkpoint::unpickle(input, [](const checkpoint::StorageRef& storage) {
    if (storage.key != "0") throw InputError("no such storage");
    return at::zeros({16}, at::kByte);
  });
}

std::string refusal(const std::string& pickle) {
  return test::refusal_of([&] { unpickled(pickle); });
}

/// A pickled tensor: four floats' storage under `shape`.
std::string tensor_pickle(const std::string& offset, const std::string& sizes, const std::string& strides) {
  return "\x80\x02"
         "ctorch._utils\n_rebuild_tensor_v2\n(("
         "X\7\0\0\0storage"
         "ctorch\nFloatStorage\n"
         "X\1\0\0\0"
         "0"
         "X\3\0\0\0cpu"
         "K\4tQ"s +
         offset + sizes + strides + "\x89)tR.";
}

std::string with_nulls(const char* text, size_t size) {
  return {text, size};
}

TEST(Hostile, EveryFlippedBitOfASealedFileIsSeen) {
  const TempFolder folder;
  const auto whole = test::pt_bytes(test::small_checkpoint(7));
  ASSERT_NO_THROW(test::read_bytes(folder, whole));
  std::mt19937 random(1);
  for (int round = 0; round < kRounds; ++round) {
    auto bytes = whole;
    // The last hundred bytes, where the directory ends, one by one; then anywhere.
    const auto at = round < 100 ? whole.size() - 1 - static_cast<size_t>(round) : random() % whole.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    EXPECT_THROW(test::read_bytes(folder, bytes), InputError) << "byte " << at << " of " << whole.size();
  }
}

// As torch.save leaves a file: without our checksum, but with one of each record.
TEST(Hostile, AFlippedByteOfARecordIsSeenWithoutASeal) {
  const TempFolder folder;
  auto bytes = test::pt_bytes(make_dict({{"w", at::full({64}, 'U', at::kByte)}}));
  bytes.resize(bytes.rfind("lockstep crc32"));
  bytes[bytes.size() - 2] = 0;  // the length of the comment
  ASSERT_NO_THROW(test::read_bytes(folder, bytes));
  bytes[bytes.find(std::string(64, 'U')) + 20] ^= 1;
  const auto error = test::error_from([&] { test::read_bytes(folder, bytes); });
  EXPECT_TRUE(test::has(error.what(), "data/0 is damaged"));
  EXPECT_EQ(error.where(), folder / "bytes.pt");
}

TEST(Hostile, EveryTruncationIsSeen) {
  const TempFolder folder;
  const auto whole = test::pt_bytes(test::small_checkpoint(7));
  std::mt19937 random(2);
  for (int round = 0; round < kRounds; ++round) {
    const auto size = round < 100 ? whole.size() - 1 - static_cast<size_t>(round) : random() % whole.size();
    EXPECT_THROW(test::read_bytes(folder, whole.substr(0, size)), InputError) << "cut at " << size;
  }
}

TEST(Hostile, AMaliciousGlobalIsNamed) {
  EXPECT_TRUE(test::has(refusal("\x80\x02"
                                "cos\nsystem\nX\4\0\0\0true\x85R."),
                        "os.system"));
  EXPECT_TRUE(test::has(refusal("\x80\x04\x8c\x08"
                                "builtins\x8c\x04"
                                "eval\x93."),
                        "builtins.eval"));
  EXPECT_TRUE(test::has(refusal("\x80\x02"
                                "c__main__\nNet\n."),
                        "__main__.Net"));
}

TEST(Hostile, TensorsStayInsideTheirStorage) {
  const auto zero = with_nulls("K\0", 2);
  EXPECT_EQ(refusal(tensor_pickle(zero, "K\2K\2\x86", "K\2K\1\x86")), "");
  EXPECT_NE(refusal(tensor_pickle(zero, "K\2K\3\x86", "K\3K\1\x86")), "") << "six of four elements";
  EXPECT_NE(refusal(tensor_pickle("K\1", "K\4\x85", "K\1\x85")), "") << "offset";
  EXPECT_NE(refusal(tensor_pickle(zero, "K\2\x85", "J\xff\xff\xff\x7f\x85")), "") << "stride";
  EXPECT_NE(refusal(tensor_pickle(zero, "K\2\x85", "J\xff\xff\xff\xff\x85")), "") << "negative stride";
  EXPECT_NE(refusal(tensor_pickle(zero, "J\xff\xff\xff\xff\x85", "K\1\x85")), "") << "negative size";
  EXPECT_NE(refusal(tensor_pickle("J\xff\xff\xff\xff", "K\1\x85", "K\1\x85")), "") << "negative offset";
  EXPECT_NE(refusal(tensor_pickle(zero, "K\2\x85", "K\2K\1\x86")), "") << "two strides for one size";
  const auto huge = with_nulls("\x8a\7\0\0\0\0\0\0\1", 9);
  EXPECT_NE(refusal(tensor_pickle(zero, huge + huge + "\x86", "K\1K\1\x86")), "") << "overflow";
  EXPECT_NE(refusal(tensor_pickle(zero, "J\xff\xff\xff\x7f\x85", zero + "\x85")), "")
      << "a terabyte of one element";
}

TEST(Hostile, StructuresStayFinite) {
  EXPECT_NE(refusal("\x80\x02]q\1h\1a."), "") << "a list in itself";
  std::string deep = "\x80\x02";
  for (int i = 0; i < 100'000; ++i) deep += ']';
  for (int i = 1; i < 100'000; ++i) deep += 'a';
  EXPECT_NE(refusal(deep + "."), "");
  std::string laughs = "\x80\x02K\1";  // 2^80 ones
  for (int i = 0; i < 80; ++i) laughs += "2\x86";
  EXPECT_NE(refusal(laughs + "."), "");
  std::string downward = "\x80\x02]";  // each list is put into the one before, then filled
  for (int i = 0; i < 1000; ++i) downward += "]q\2a0h\2";
  EXPECT_NE(refusal(downward + "."), "");
}

/// A list of what the opcodes leave on the stack.
std::string list_of(const std::string& opcodes, size_t times) {
  std::string pickle = "\x80\x02](";
  for (size_t i = 0; i < times; ++i) pickle += opcodes;
  return pickle + "e.";
}

TEST(Hostile, ASmallFileHoldsLittle) {
  constexpr size_t kMany = 3'000'000;
  for (const auto* opcodes : {"]", "}", ")", "N", "K\1", "]\x94"})
    EXPECT_NE(refusal(list_of(opcodes, kMany)).find("too many small values"), std::string::npos) << opcodes;
  std::string copies = "\x80\x02](X"s + with_nulls("\0\0\x10\0", 4) + std::string(1 << 20, 'x') + "q\1";
  for (int i = 0; i < 200; ++i) copies += "c_codecs\nencode\nh\1\x85R";
  EXPECT_NE(refusal(copies + "e."), "") << "a megabyte of text, 200 times";
  std::string doubled = "\x80\x02]";
  for (int i = 0; i < 22; ++i) doubled += "2\x86";
  EXPECT_NE(refusal(doubled + "."), "") << "four million lists when written out";
  EXPECT_EQ(refusal(list_of("G@\t!\xfbTD-\x18", 300'000)), "") << "an honest list of losses";
}

/// A zip archive of stored records as its directory claims them: name, offset and size of each.
struct ClaimedRecord {
  std::string name;
  uint32_t offset, size;
};
std::string zip_of(std::string body, const std::vector<ClaimedRecord>& records) {
  const auto number = [](uint64_t value, size_t bytes) {
    std::string text(bytes, '\0');  // little-endian
    for (auto& byte : text) byte = static_cast<char>(std::exchange(value, value >> 8));
    return text;
  };
  const auto start = body.size();
  for (const auto& [name, offset, size] : records)
    body += "PK\1\2" + number(0, 12) + number(0, 4) + number(size, 4) + number(size, 4) +
            number(name.size(), 2) + number(0, 12) + number(offset, 4) + name;
  const auto length = body.size() - start;
  return body + "PK\5\6" + number(0, 4) + number(records.size(), 2) + number(records.size(), 2) +
         number(length, 4) + number(start, 4) + number(0, 2);
}

TEST(Hostile, RecordsOfAnArchiveDoNotOverlap) {
  const auto records_in = [](uint32_t count, uint32_t size) {
    std::string body;
    std::vector<ClaimedRecord> records;
    for (uint32_t i = 0; i < count; ++i) {
      records.push_back({std::to_string(10'000 + i), static_cast<uint32_t>(body.size()), size});
      body += "PK\3\4" + std::string(22, '\0') + "\5\0\0\0"s + records.back().name;
    }
    const auto file = zip_of(body + std::string(size, '8'), records);
    const std::span bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
    return checkpoint::ZipArchive({bytes, "a.zip"}).records().size();
  };
  EXPECT_THROW(records_in(2, 39), InputError) << "the first record's data contains the second";
  EXPECT_EQ(records_in(0xffff, 0), 0xffffu) << "Python's zipfile writes so many without zip64";
}

TEST(Hostile, LongIntegersKeepTheirSign) {
  EXPECT_EQ(unpickled(with_nulls("\x80\x02\x8a\0.", 5)).toInt(), 0);
  EXPECT_EQ(unpickled("\x80\x02\x8a\1\xff.").toInt(), -1);
  EXPECT_EQ(unpickled(with_nulls("\x80\x02\x8a\2\xff\0.", 7)).toInt(), 255);
  EXPECT_EQ(unpickled("\x80\x02\x8a\3\1\2\x83.").toInt(), -8191487);
  const auto wide = unpickled(with_nulls("\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0.", 14));
  EXPECT_EQ(wide.toStringRef(), "0x00ffffffffffffffff");
}

}  // namespace
}  // namespace lockstep
