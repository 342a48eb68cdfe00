#include "lockstep/data/image_set.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include "lockstep/data/node_share.h"
#include "peer.h"
#include "refusal.h"

namespace lockstep {
namespace {

std::string header(std::vector<uint32_t> words) {
  std::string text;
  for (uint32_t word : words)
    for (int shift : {24, 16, 8, 0}) text += static_cast<char>(word >> shift);
  return text;
}

std::string gzipped(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 31, 9, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = text.size();
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = out.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

const std::string kImages = header({0x803, 3, 2, 2}) + "abcdefghijkl";
const std::string kLabels = header({0x801, 3}) + std::string("\0\x02\x09", 3);

struct Idx : testing::Test {
  test::TempFolder folder;
  Arena heap;

  at::Tensor images(const std::string& content) {
    return read_idx_images(folder.write("images", content), heap);
  }
  at::Tensor labels(const std::string& content, int64_t classes = 10) {
    return read_idx_labels(folder.write("labels", content), heap, classes);
  }
  // The error says what is wrong and names the file, and is the user's to fix.
  void refused(const std::string& content, const std::string& words, bool as_labels = false) {
    const auto error = test::error_from([&] { as_labels ? labels(content) : images(content); });
    EXPECT_TRUE(test::has(error.what(), words));
    EXPECT_TRUE(test::has(error.where(), folder.path().string()));
  }
};

TEST_F(Idx, ReadsPlainAndGzippedAlike) {
  const auto plain = images(kImages);
  EXPECT_EQ(plain.sizes(), (at::IntArrayRef{3, 1, 2, 2}));
  EXPECT_EQ(plain.flatten()[11].item<uint8_t>(), 'l');
  EXPECT_TRUE(at::equal(plain, images(gzipped(kImages))));
  // Two gzip members one after the other are one file.
  EXPECT_TRUE(at::equal(plain, images(gzipped(kImages.substr(0, 7)) + gzipped(kImages.substr(7)))));
  EXPECT_EQ(labels(kLabels)[2].item<uint8_t>(), 9);
  EXPECT_EQ(images(header({0x804, 1, 3, 2, 1}) + "abcdef").sizes(), (at::IntArrayRef{1, 3, 2, 1}));
}

TEST_F(Idx, RefusesBadFilesInWords) {
  refused("", "empty");
  refused(std::string("\0\0", 2), "header");
  refused(kImages.substr(0, 9), "header");
  refused("PK\x03\x04 this is a zip", "not an IDX file");
  refused(kLabels, "1 dimensions, but images have");
  refused(kImages, "but labels have", true);
  refused(header({0xd03, 1, 1, 1}) + "abcd", "type 0x0d");
  refused(header({0x803, 0, 2, 2}), "no samples");
  refused(header({0x803, 3, 0, 2}), "without pixels");
  refused(kImages.substr(0, 20), "ends early: 4 of 12 bytes");
  refused(kImages + "x", "continues after its 3 samples");
  refused(header({0x803, 0xffffffff, 0xffffffff, 0xffffffff}) + "abc", "more than the file can contain");
  refused(header({0x801, 1}) + "\x0a", "label 10 of sample 0", true);
  EXPECT_THROW(read_idx_images(folder / "missing", heap), InputError);
  EXPECT_THROW(read_idx_images(folder.path(), heap), InputError);
}

TEST_F(Idx, RefusesDamagedGzipInWords) {
  const auto whole = gzipped(kImages);
  for (size_t length : {5ul, 15ul, whole.size() - 9, whole.size() - 1})
    refused(whole.substr(0, length), "ends early");
  auto flipped = whole;
  flipped[flipped.size() - 6] ^= 1;  // in the CRC
  refused(flipped, "damaged");
  refused(gzipped(kImages.substr(0, 20)), "ends early");
  refused(gzipped(kImages + "x"), "continues after");
  // A small file that promises gigabytes is refused before they are asked for.
  refused(gzipped(header({0x803, 60000, 60000, 60000})), "more than the file can contain");
}

TEST_F(Idx, AnEmptyPromiseTakesNoMemory) {
  std::string noise;  // so that the gzipped file is large enough for what it promises to be possible
  for (uint32_t i = 0, value = 1; i < 200'000; ++i)
    noise += static_cast<char>((value = value * 1664525 + 1013904223) >> 24);
  // in the words of the check that comes before the memory is asked for
  refused(gzipped(header({0x803, 100, 1000, 1000}) + noise), "of the promised");
}

}  // namespace
}  // namespace lockstep
