// Folders of images as torchvision's ImageFolder has them, to the bit.
#include "lockstep/data/image_folder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/data/image_set.h"
#include "lockstep/data/pixels/image_file.h"
#include "lockstep/data/pixels/resample.h"
#include "peer.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

std::string bytes_of(const data::Pixels& image) {
  return {reinterpret_cast<const char*>(image.rgb.data()),
          static_cast<size_t>(image.height * image.width * 3)};
}

// As the peer makes it.
data::Pixels noise(int64_t height, int64_t width) {
  data::Pixels image;
  image.resize(height, width);
  for (int64_t i = 0; i < height * width * 3; ++i)
    image.rgb[i] = static_cast<uint8_t>(i * 7919 % 65521 % 256);
  return image;
}

TEST(Resample, ScalesAndCutsToTorchvisionsBits) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "torchvision");
  const auto version = test::output_of(python + " -c 'import PIL; print(PIL.__version__)'");
  if (std::stoi(version) < 13) GTEST_SKIP() << "Pillow here is " << version << ", and ours scales as 13 does";
  const auto peer = test::output_of(python + " tests/data/image_folder_peer.py scaled");
  const int64_t sizes[][4] = {{200, 30, 24, 24}, {90, 30, 60, 12},   {301, 20, 24, 35},  {120, 30, 20, 29},
                              {60, 200, 24, 24}, {40, 60, 24, 24},   {61, 37, 32, 32},   {17, 90, 24, 31},
                              {8, 8, 21, 13},    {33, 33, 33, 33},   {64, 48, 64, 20},   {1, 1, 3, 5},
                              {1, 50, 4, 4},     {301, 203, 7, 224}, {100, 101, 99, 100}};
  const data::Box parts[] = {{0, 0, 40, 60}, {1, 30, 39, 19}, {2, 7, 37, 12},  {5, 3, 30, 9},
                             {3, 5, 20, 31}, {39, 59, 1, 1},  {10, 0, 24, 18}, {0, 20, 7, 40}};
  data::Resampler resampler;
  std::string ours;
  for (const auto& [h, w, rows, columns] : sizes) {
    ours += bytes_of(resampler.scale(noise(h, w), data::middle_view(h, w, rows, columns).scaling));
    EXPECT_EQ(peer.substr(0, ours.size()) == ours, true) << h << "x" << w << " to " << rows << "x" << columns;
  }
  for (const auto& part : parts)
    ours += bytes_of(resampler.scale(noise(40, 60), {part, 24, 18, {0, 0, 24, 18}}));
  ASSERT_EQ(peer.size(), ours.size());
  EXPECT_TRUE(peer == ours);
}

data::FoundImages found_in(const std::string& root) {
  return data::find_images(root, data::class_folders(root));
}

data::ImageFolderSet set_of(const data::FoundImages& found, data::Augment augment = {}) {
  return {data::image_list(found),
          {.height = 24,
           .width = 24,
           .table = normalize_table({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}),
           .augment = augment,
           .seed = 5}};
}

TEST(ImageFolder, IsTorchvisionsFolderByFolderAndBitByBit) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "torchvision");
  const test::TempFolder folder, kinds;
  test::output_of(python + " tests/data/image_folder_peer.py pixels " + kinds.path().string());
  const auto put = [&](const std::string& place, const std::string& kind) {
    fs::create_directories(fs::path(folder / place).parent_path());
    fs::copy(kinds / kind, folder / place);
  };
  put("b/2.png", "png-rgb.png"), put("b/10.JPG", "jpeg-2.jpg"), put("B/x.jpeg", "jpeg-grey.jpeg");
  put("a class/é.png", "png-palette.png"), put("a class/sub/0.png", "png-rgba.png");
  put("a class/sub-1/0.jpg", "jpeg-1.jpg"), put("a class/z.png", "png-one-bit.png");
  folder.write("b/notes.txt", "no image"), folder.write("beside.txt", "no image");
  fs::create_directory_symlink(kinds.path(), folder / "c");
  fs::remove(kinds / "png-deep-grey.png");  // whose pixels are ours, not Pillow's
  data::FoundImages found;
  try {
    found = found_in(folder.path());
    ASSERT_TRUE(data::remove_damaged(found, /*all_pixels=*/true).empty());
  } catch (const InputError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto peer =
      test::output_of(python + " tests/data/image_folder_peer.py folder " + folder.path().string());
  std::string lines;
  for (size_t i = 0; i < found.files.size(); ++i) lines += format("{} {}\n", found.files[i], found.labels[i]);
  ASSERT_EQ(peer.substr(0, lines.size()), lines);
  std::vector<int64_t> all(found.files.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const auto batch = set_of(found).get(all);
  const std::string floats(static_cast<const char*>(batch.input.const_data_ptr()), batch.input.nbytes());
  EXPECT_TRUE(peer.substr(lines.size()) == floats);
  EXPECT_TRUE(at::equal(batch.target, at::tensor(found.labels, at::kLong)));
  EXPECT_EQ(found.left_out, 1);
}

TEST(ImageFolder, DrawsASampleBySeedEpochAndNumberAlone) {
  const auto same = [](const data::View& a, const data::View& b) {
    const auto& p = a.scaling.part;
    const auto& q = b.scaling.part;
    return p.top == q.top && p.left == q.left && p.height == q.height && p.width == q.width &&
           a.flipped == b.flipped;
  };
  const data::Augment both{.crop = true, .flip = true};
  const auto view = [&](int64_t seed, int64_t epoch, int64_t sample) {
    return data::drawn_view(300, 400, 24, 24, both, static_cast<uint64_t>(seed), epoch, sample);
  };
  EXPECT_TRUE(same(view(1, 2, 3), view(1, 2, 3)));
  EXPECT_FALSE(same(view(1, 2, 3), view(2, 2, 3)) && same(view(1, 2, 4), view(2, 2, 4)));
  EXPECT_FALSE(same(view(1, 2, 3), view(1, 3, 3)) && same(view(1, 2, 4), view(1, 3, 4)));
  EXPECT_FALSE(same(view(1, 2, 3), view(1, 2, 4)) && same(view(1, 2, 5), view(1, 2, 6)));
  int64_t flips = 0;
  double area = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    const auto [scaling, flipped] = view(0, 0, i);
    const auto& part = scaling.part;
    const double share = static_cast<double>(part.height * part.width) / (300 * 400);
    const double ratio = static_cast<double>(part.width) / static_cast<double>(part.height);
    ASSERT_TRUE(part.top >= 0 && part.left >= 0 && part.top + part.height <= 300 &&
                part.left + part.width <= 400);
    ASSERT_TRUE(share > 0.075 && share < 1.001 && ratio > 0.74 && ratio < 1.35) << share << " " << ratio;
    area += share / 2000;
    flips += flipped;
  }
  EXPECT_NEAR(flips, 1000, 100);
  EXPECT_NEAR(area, 0.435, 0.02);  // as torchvision draws them: large parts that do not fit are drawn again
}

TEST(ImageFolder, OfLongThinImagesTakesThePartThatTorchvisionFallsBackTo) {
  const auto view = data::drawn_view(10, 1000, 8, 8, {.crop = true}, 0, 0, 0);
  EXPECT_LE(view.scaling.part.width, 13);
}

TEST(ImageFolder, RefusesWhatIsNoFolderOfClasses) {
  const test::TempFolder folder;
  EXPECT_THROW(data::image_layout(folder / "missing"), InputError);
  EXPECT_THROW(data::class_folders(folder.path()), InputError);
  fs::create_directories(folder / "circle");
  fs::create_directory_symlink(folder / "circle", folder / "circle/again");
  EXPECT_THROW(found_in(folder.path()), InputError);
  fs::remove(folder / "circle/again");
  // 20 folders, and with two links to the next in each a million ways through them
  const fs::path fan = folder / "circle/fan";
  for (int i = 0; i < 20; ++i) fs::create_directories(fan / std::to_string(i));
  for (int i = 1; i < 20; ++i)
    for (const char* link : {"a", "b"})
      fs::create_directory_symlink(fan / std::to_string(i), fan / std::to_string(i - 1) / link);
  EXPECT_THROW(found_in(folder.path()), InputError);
  fs::remove_all(fan);
  fs::create_directories(folder / "bad\xff");
  EXPECT_THROW(data::class_folders(folder.path()), InputError);
}

// Lists each image with its class; nothing if the archive is refused.
TEST(ImageArchive, OfAnotherProgramIsReadAsTheFolderThatItContains) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "zipfile");
  const char* const cases[][2] = {{"a/ a/b/ a/b/1.png b/ b/1.png", "a:a/b/1.png b:b/1.png "},
                                  {"all/ all/b/1.png all/a/2.png all/x.png", "a:a/2.png b:b/1.png "},
                                  {"./a/1.png ./b/1.png", "a:a/1.png b:b/1.png "},
                                  {"a/1.png __MACOSX/a/1.png ../c/1.png", "a:a/1.png "},
                                  {"a//1.png b//1.png", ""},
                                  {"/1.png a/1.png", ""},
                                  {"a/../b/1.png a/1.png", ""}};
  for (const auto& [names, expected] : cases) {
    const test::TempFolder folder;
    const auto path = folder / "set.zip";
    test::output_of(
        format("{} -c 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1], \"w\"); "
               "[z.writestr(name, name) for name in sys.argv[2:]]; z.close()' {} {}",
               python, path, names));
    std::string listed;
    try {
      Arena arena;
      const auto archive = data::open_image_archive(path, arena);
      const auto classes = data::class_folders(path, &archive);
      const auto found = data::find_images(path, classes, &archive);
      for (size_t i = 0; i < found.files.size(); ++i)
        listed += classes[found.labels[i]] + ":" + found.files[i] + " ";
    } catch (const InputError&) {
    }
    EXPECT_EQ(listed, expected) << names;
  }
}

// Pixels as Pillow has them, and files that are none.

constexpr const char* kPeer = " tests/data/image_folder_peer.py pixels ";

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
    return folder_.write("cut-" + name, base::read_text(folder_ / name).substr(0, left));
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
    const auto bytes = bytes_of(image);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), at)) << name;
    if (name == "png-rgb.png") {
      const auto planes = data::read_png(folder_ / name, 3).permute({0, 2, 3, 1}).contiguous();
      EXPECT_TRUE(std::string(static_cast<const char*>(planes.const_data_ptr()), planes.nbytes()) == bytes);
    }
    at += bytes.size();
    EXPECT_EQ(said(folder_ / name, true), "good") << name;
  }
  EXPECT_EQ(at, peer_.data() + peer_.size());
}

TEST_F(ImageFile, ThatIsCutOffIsFoundWithoutReadingItWhole) {
  for (const auto& name : names_in(folder_)) {
    const auto size = base::read_text(folder_ / name).size();
    for (const size_t left : {size / 2, size - 13, size_t{30}, size_t{3}}) {
      if (name == "jpeg-and-more.jpg" && left > size / 2) continue;
      EXPECT_NE(said(cut(name, left), true), "good") << name << " " << left << " of " << size;
    }
    EXPECT_NE(said(cut(name, size / 2)), "good") << name;
  }
  EXPECT_EQ(said(cut("jpeg-0.jpg", 700)), "the JPEG is cut off");
  EXPECT_EQ(said(cut("png-rgb.png", 3000)), "the PNG is cut off");
  EXPECT_EQ(said(cut("png-rgb.png", 0), true), "the file is empty");
  EXPECT_THROW(data::is_png(folder_ / "missing.png"), InputError);
  auto content = base::read_text(folder_ / "png-rgb.png");  // lockstep_fuzz damages others
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
