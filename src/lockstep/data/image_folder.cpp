#include "lockstep/data/image_folder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/zip.h"
#include "lockstep/data/rows/fields.h"

namespace lockstep::data {
namespace {

// Planes of floats from rows of bytes, mirrored left to right if `flipped`.
void lay_out(const Pixels& image, bool flipped, const float* table, float* out) {
  const int64_t step = flipped ? -3 : 3, start = flipped ? 3 * (image.width - 1) : 0;
  for (int64_t c = 0; c < 3; ++c, table += 256) {
    for (int64_t y = 0; y < image.height; ++y) {
      const uint8_t* in = image.row(y) + start + c;
      for (int64_t x = 0; x < image.width; ++x, in += step) *out++ = table[*in];
    }
  }
}

namespace fs = std::filesystem;

constexpr std::array kEndings = {".png", ".jpg", ".jpeg"};
constexpr std::array kEvalFolders = {"val", "eval", "test"};
constexpr int kDeepest = 20;
constexpr int64_t kMostFolders = 100'000;  // of a class
constexpr const char* kLayout =
    "set data.root to a folder with train/CLASS/*.jpg and val/CLASS/*.jpg, or CLASS/*.jpg";

std::string shown(const std::string& path) {
  return base::printable(path, 4096);
}

std::vector<fs::directory_entry> entries_of(const std::string& folder) {
  std::error_code failed;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    entries.push_back(*entry);
  if (failed)
    throw InputError(format("the folder cannot be read: {}", failed.message()), shown(folder),
                     "check its permissions, or move it elsewhere");
  return entries;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code none;
  return entry.is_directory(none);
}

// .git, .ipynb_checkpoints, and what macOS adds to archives
bool is_hidden(const std::string& name) {
  return name.starts_with('.') || name == "__MACOSX";
}

std::vector<std::string> visible_folders(const std::string& root, const ImageArchive* archive) {
  std::vector<std::string> names;
  if (archive) {
    const auto below = root + "/";
    for (auto at = archive->files.lower_bound(below);
         at != archive->files.end() && at->first.starts_with(below);) {
      const auto end = at->first.find('/', below.size());
      const auto name = at->first.substr(below.size(), end - below.size());
      if (end != name.npos && !is_hidden(name)) names.push_back(name);
      at = end == name.npos ? std::next(at) : archive->files.lower_bound(below + name + char{'/' + 1});
    }
  } else {
    for (const auto& entry : entries_of(root)) {
      const std::string name = entry.path().filename();
      if (!is_hidden(name) && is_folder(entry)) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool holds_folders(const std::string& folder, const ImageArchive* archive) {
  std::error_code none;
  return (archive || fs::is_directory(folder, none)) && !visible_folders(folder, archive).empty();
}

// On foreign disks, macOS writes metadata for photo.jpg to ._photo.jpg.
bool is_image(const std::string& name) {
  return !name.starts_with("._") &&
         std::ranges::count(kEndings, base::lower_case(fs::path(name).extension().string())) > 0;
}

using FolderAndName = std::pair<std::string, std::string>;

// Follows links, as torchvision does. A few of them can make more folders than a disk has.
void walk(FoundImages& found, const std::string& below, int depth, int64_t& folders,
          std::vector<FolderAndName>& files) {
  const auto folder = below.empty() ? found.root : found.root + "/" + below;
  if (depth > kDeepest || ++folders > kMostFolders)
    throw InputError(format("a class has more than {} folders, or {} nested ones", kMostFolders, kDeepest),
                     shown(folder), "remove links that lead back to a folder above");
  for (const auto& entry : entries_of(folder)) {
    const std::string name = entry.path().filename();
    if (is_folder(entry)) {
      walk(found, below.empty() ? name : below + "/" + name, depth + 1, folders, files);
    } else if (is_image(name)) {
      files.emplace_back(below, name);
    } else {
      found.left_out += !is_hidden(name);
    }
  }
}

void walk(FoundImages& found, const std::string& below, const ImageArchive& archive,
          std::vector<FolderAndName>& files) {
  const auto folder = found.root + "/" + below + "/";
  for (auto at = archive.files.lower_bound(folder);
       at != archive.files.end() && at->first.starts_with(folder); ++at) {
    const fs::path path = at->first.substr(found.root.size() + 1);
    if (is_image(path.filename()))
      files.emplace_back(path.parent_path(), path.filename());
    else
      found.left_out += !is_hidden(path.filename());
  }
}

void add_class(const std::string& below, int64_t label, FoundImages& found, const ImageArchive* archive) {
  std::vector<FolderAndName> files;
  int64_t folders = 0;
  archive ? walk(found, below, *archive, files) : walk(found, below, 0, folders, files);
  std::sort(files.begin(), files.end());
  for (const auto& [folder, name] : files) {
    found.files.push_back(folder.empty() ? name : folder + "/" + name);
    found.labels.push_back(label);
    if (archive) found.places.push_back(archive->files.at(found.root + "/" + found.files.back()));
  }
}

}  // namespace

ImageArchive open_image_archive(const std::string& path, Arena& arena) {
  const checkpoint::MappedFile file(path, "the archive of images", kLayout);
  if (!checkpoint::is_zip(file.bytes()))
    throw InputError("data.root is neither a folder nor a zip archive", shown(path), kLayout);
  const checkpoint::ZipArchive zip(file.named(), "copy the archive again, or make a new one");
  ImageArchive archive{.files = {}, .bytes = checkpoint::view_of(file.map(), file.bytes())};
  for (const auto& [name, crc32, data, size, compressed] : zip.records()) {
    if (name.empty() || name.ends_with('/')) continue;  // a folder
    if (fs::path(name).relative_path().lexically_normal().string() != name)
      throw InputError("the archive has a file name with an empty part, . or ..", shown(path + ": " + name),
                       "make the archive again with `zip -0 -r`");
    const auto begin = zip.bytes(name, /*verify=*/false).data() - file.bytes().data();
    archive.files[path + "/" + name] = {begin, begin + std::ssize(data)};
  }
  arena.add_file(file.map(), file.number());
  return file.whole(std::move(archive));
}

ImageFolders image_layout(const std::string& root, const ImageArchive* archive) {
  std::error_code none;
  if (!archive && !fs::is_directory(root, none))
    throw InputError("there is no such folder", shown(root), kLayout);
  // a class may be called train
  if (!holds_folders(root + "/train", archive)) return {root, {}};
  for (const char* name : kEvalFolders) {
    if (holds_folders(root + "/" + name, archive)) return {root + "/train", root + "/" + name};
  }
  return {root + "/train", {}};
}

std::vector<std::string> class_folders(const std::string& root, const ImageArchive* archive) {
  auto names = visible_folders(root, archive);
  for (const auto& name : names) {
    if (base::invalid_utf8(name))
      throw InputError("the class's name is not UTF-8", shown(root + "/" + name), "rename the folder");
  }
  if (names.empty()) throw InputError("there are no class folders", shown(root), kLayout);
  return names;
}

FoundImages find_images(const std::string& root, const std::vector<std::string>& classes,
                        const ImageArchive* archive) {
  FoundImages found{.root = root, .files = {}, .labels = {}};
  if (archive) found.bytes = archive->bytes;
  for (const auto& folder : class_folders(root, archive)) {
    const auto place = std::find(classes.begin(), classes.end(), folder);
    if (place == classes.end())
      throw InputError(format("the training set has no class {}", base::printable(folder)),
                       shown(root + "/" + folder), "add images of it to the training set, or remove it here");
    add_class(folder, place - classes.begin(), found, archive);
  }
  return found;
}

FoundImages find_images(const std::string& folder) {
  FoundImages found{.root = folder, .files = {}, .labels = {}};
  add_class("", 0, found, nullptr);
  found.labels.clear();
  return found;
}

std::string ImageList::file(int64_t index) const {
  const auto* end = ends.const_data_ptr<int64_t>() + index;
  const int64_t begin = index == 0 ? 0 : end[-1];
  return {reinterpret_cast<const char*>(names.const_data_ptr<uint8_t>()) + begin,
          static_cast<size_t>(*end - begin)};
}

namespace {

std::span<const uint8_t> part_of(const at::Tensor& bytes, const int64_t* place) {
  return {bytes.const_data_ptr<uint8_t>() + place[0], static_cast<size_t>(place[1] - place[0])};
}

}  // namespace

const Pixels& ImageList::read(int64_t index, ImageReader& reader) const {
  if (places.numel() == 0) return reader.read(path(index));
  return reader.read(part_of(bytes, places.const_data_ptr<int64_t>() + 2 * index), path(index));
}

ImageList image_list(const FoundImages& found) {
  std::string names;
  std::vector<int64_t> ends;
  for (const auto& file : found.files) {
    names += file;
    ends.push_back(static_cast<int64_t>(names.size()));
  }
  ImageList list{.root = found.root,
                 .names = at::empty({static_cast<int64_t>(names.size())}, at::kByte),
                 .ends = at::tensor(ends, at::kLong),
                 .labels = {},
                 .places = at::empty({std::ssize(found.places), 2}, at::kLong),
                 .bytes = found.bytes};
  if (!names.empty()) std::memcpy(list.names.mutable_data_ptr<uint8_t>(), names.data(), names.size());
  if (found.labels.size() == found.files.size()) list.labels = at::tensor(found.labels, at::kLong);
  if (!found.places.empty())
    std::memcpy(list.places.mutable_data_ptr<int64_t>(), found.places.data(), list.places.nbytes());
  return list;
}

Batch ImageFolderSet::get(at::ArrayRef<int64_t> indices, bool pinned) const {
  const auto count = static_cast<int64_t>(indices.size());
  const auto options = at::TensorOptions().pinned_memory(pinned);
  Batch batch;
  batch.input = at::empty({count, 3, look_.height, look_.width}, options.dtype(at::kFloat));
  float* out = batch.input.mutable_data_ptr<float>();
  ImageReader reader;
  Resampler resampler;
  for (const int64_t index : indices) {
    const auto& image = list_.read(index, reader);
    const auto [scaling, flipped] = epoch_
                                        ? drawn_view(image.height, image.width, look_.height, look_.width,
                                                     look_.augment, look_.seed, *epoch_, index)
                                        : middle_view(image.height, image.width, look_.height, look_.width);
    lay_out(resampler.scale(image, scaling), flipped, look_.table.const_data_ptr<float>(), out);
    out += 3 * look_.height * look_.width;
  }
  if (!list_.labels.defined()) return batch;
  batch.target = at::empty({count}, options.dtype(at::kLong));
  at::index_select_out(batch.target, list_.labels, 0, at::tensor(indices, at::kLong));
  return batch;
}

std::shared_ptr<const Dataset> ImageFolderSet::in_epoch(int64_t epoch) const {
  if (!look_.augment.crop && !look_.augment.flip) return nullptr;
  auto augmented = std::make_shared<ImageFolderSet>(*this);
  augmented->epoch_ = epoch;
  return augmented;
}

void parallel_each(int64_t count, int threads, const std::function<std::function<void(int64_t)>()>& make) {
  std::atomic<int64_t> next = 0;
  const auto run = [&] {
    try {
      const auto work = make();
      for (int64_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;  // ends the other threads
      throw;
    }
  };
  std::vector<std::future<void>> running;
  for (int64_t i = 0; i < std::min<int64_t>(threads, count); ++i)  // in get() if there are no more threads
    running.push_back(std::async(std::launch::async | std::launch::deferred, run));
  for (auto& one : running) one.get();
}

int thread_count(int least) {
  return std::max(least, static_cast<int>(std::thread::hardware_concurrency()));
}

std::vector<Damage> remove_damaged(FoundImages& images, bool all_pixels) {
  constexpr int kLeastThreads = 8;  // for first and last bytes, since these mostly wait
  std::vector<Damage> damaged;
  std::mutex mutex;
  const auto make = [&] {
    return [&, reader = std::make_shared<ImageReader>()](int64_t i) {
      const auto path = images.root + "/" + images.files[i];
      try {
        if (!images.places.empty()) {
          const auto bytes = part_of(images.bytes, images.places[i].data());
          all_pixels ? void(reader->read(bytes, path)) : reader->check(bytes, path);
        } else {
          all_pixels ? void(reader->read(path)) : reader->check(path);
        }
      } catch (const DamagedImage& bad) {
        const std::lock_guard lock(mutex);
        damaged.push_back({i, bad.what(), bad.where()});
      }
    };
  };
  parallel_each(static_cast<int64_t>(images.files.size()), thread_count(all_pixels ? 1 : kLeastThreads),
                make);
  std::sort(damaged.begin(), damaged.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  size_t kept = 0;
  auto bad = damaged.begin();
  for (size_t i = 0; i < images.files.size(); ++i) {
    if (bad != damaged.end() && bad->index == static_cast<int64_t>(i)) {
      ++bad;
      continue;
    }
    std::swap(images.files[kept], images.files[i]);
    if (!images.places.empty()) images.places[kept] = images.places[i];
    images.labels[kept++] = images.labels[i];
  }
  images.files.resize(kept);
  images.labels.resize(kept);
  images.places.resize(std::min(kept, images.places.size()));
  return damaged;
}

}  // namespace lockstep::data
