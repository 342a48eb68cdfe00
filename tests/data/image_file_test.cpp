// Pixels as Pillow has them, and files that are none.
#include "lockstep/data/pixels/image_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "data/support.h"
#include "peer.h"

namespace lockstep {
namespace {

constexpr const char* kPeer = " tests/data/image_folder_peer.py pixels ";

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_in(const test::TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// What reading gives, or says.
std::string said(const std::string& path, bool check = false) {
  data::ImageReader reader;
  try {
    if (check) reader.check(path);
    if (!check) reader.read(path);
  } catch (const data::DamagedImage& bad) {
    EXPECT_NE(bad.where().find(std::filesystem::path(path).filename()), std::string::npos);
    return bad.what();
  }
  return "good";
}

class ImageFile : public testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_PYTHON_OR_SKIP(python, "PIL");
    peer_ = test::output_of(python + kPeer + folder_.path().string());
    try {
      data::ImageReader().read(folder_ / "jpeg-0.jpg");
      data::ImageReader().read(folder_ / "png-rgb.png");
    } catch (const data::DamagedImage&) {
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  std::string cut(const std::string& name, size_t left) {
    return folder_.write("cut-" + name, content_of(folder_ / name).substr(0, left));
  }

  test::TempFolder folder_;
  std::string peer_;
};

TEST_F(ImageFile, IsReadToPillowsBits) {
  data::ImageReader reader;
  const char* at = peer_.data();
  for (const auto& name : names_in(folder_)) {
    int32_t size[2];
    std::memcpy(size, at, sizeof size);
    at += sizeof size;
    const auto& image = reader.read(folder_ / name);
    ASSERT_EQ(image.height, size[0]) << name;
    ASSERT_EQ(image.width, size[1]) << name;
    const auto bytes = test::bytes_of(image);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), at)) << name;
    at += bytes.size();
    EXPECT_EQ(said(folder_ / name, true), "good") << name;
  }
  EXPECT_EQ(at, peer_.data() + peer_.size());
}

TEST_F(ImageFile, ThatIsCutOffIsFoundWithoutReadingItWhole) {
  for (const auto& name : names_in(folder_)) {
    const auto size = content_of(folder_ / name).size();
    for (const size_t left : {size / 2, size - 13, size_t{30}, size_t{3}}) {
      if (name == "jpeg-and-more.jpg" && left > size / 2) continue;
      EXPECT_NE(said(cut(name, left), true), "good") << name << " " << left << " of " << size;
    }
    EXPECT_NE(said(cut(name, size / 2)), "good") << name;
  }
  EXPECT_EQ(said(cut("jpeg-0.jpg", 700)), "the JPEG is cut off");
  EXPECT_EQ(said(cut("png-rgb.png", 3000)), "the PNG is cut off");
  EXPECT_EQ(said(cut("png-rgb.png", 0), true), "the file is empty");
}

TEST_F(ImageFile, ThatIsDamagedNeverCrashes) {
  for (const auto& name : names_in(folder_)) {
    auto content = content_of(folder_ / name);
    for (size_t place = 2; place < content.size(); place += 1 + content.size() / 40) {
      auto bad = content;
      bad[place] = static_cast<char>(bad[place] ^ 0x55);
      const auto path = folder_.write("bad-" + name, bad);
      said(path), said(path, true);
    }
  }
  auto content = content_of(folder_ / "png-rgb.png");
  content[content.size() / 2] ^= 1;
  EXPECT_EQ(said(folder_.write("flipped.png", content)).substr(0, 18), "the PNG is damaged");
}

TEST(ImageFiles, ThatClaimToBeHugeAreRefused) {
  const test::TempFolder folder;
  const auto claims = folder.write(
      "huge.png",
      std::string(
          "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0\x9c\xf7\x42\x43", 33) +
          std::string(100, '\0'));
  EXPECT_NE(said(claims), "good");
}

}  // namespace
}  // namespace lockstep
