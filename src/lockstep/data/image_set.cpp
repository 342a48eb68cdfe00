#include "lockstep/data/image_set.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/data/rows/line_reader.h"

namespace lockstep {
namespace {

constexpr const char* kVerifyHint =
    "fetch or copy the file again; `lockstep data verify` checks the known sets";

uint32_t big_endian(const unsigned char* b) {
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
}

uint32_t read_word(data::ByteSource& source) {
  std::array<unsigned char, 4> bytes{};
  const size_t got = source.read(reinterpret_cast<char*>(bytes.data()), bytes.size());
  if (got == 0 && source.most_bytes() == 0) throw InputError("the file is empty", source.path(), kVerifyHint);
  if (got < bytes.size()) throw InputError("the file ends inside its IDX header", source.path(), kVerifyHint);
  return big_endian(bytes.data());
}

// The magic number says the type of the elements and how many dimensions there are.
int read_dimensions(data::ByteSource& source, int least, int most) {
  const uint32_t magic = read_word(source);
  const int type = magic >> 8 & 0xff, dimensions = magic & 0xff;
  if (magic >> 16 != 0)
    throw InputError(format("not an IDX file: it begins with {:#010x}, not {:#06x}..", magic, 0x0008),
                     source.path(), kVerifyHint);
  if (type != 0x08)
    throw InputError(format("the IDX file has elements of type {:#04x}, not unsigned bytes (0x08)", type),
                     source.path(), "write the set as unsigned bytes");
  if (dimensions < least || dimensions > most)
    throw InputError(format("the IDX file has {} dimensions, but {} have {}", dimensions,
                            least == 1 ? "labels" : "images", least == 1 ? "1" : "3 or 4"),
                     source.path(), "check that the files of images and labels are not swapped");
  return dimensions;
}

std::vector<int64_t> read_sizes(data::ByteSource& source, int dimensions) {
  std::vector<int64_t> sizes;
  int64_t bytes = 1;
  for (int i = 0; i < dimensions; ++i) {
    sizes.push_back(read_word(source));
    if (sizes.back() == 0)
      throw InputError(i == 0 ? "the IDX file has no samples" : "the IDX file has images without pixels",
                       source.path(), kVerifyHint);
    // checked at each step, so that the product never overflows
    bytes *= sizes.back();
    if (bytes > source.most_bytes())
      throw InputError(
          format("the IDX header promises {} or more bytes, which is more than the file can contain", bytes),
          source.path(), kVerifyHint);
  }
  return sizes;
}

/// A small gzipped file can promise a thousand times its size. Unpacks it once without storing it before
/// memory for that is allocated.
void check_declared_sizes(const data::ByteSource& source, const std::vector<int64_t>& sizes) {
  constexpr int64_t kAlways = 64 << 20, kUsualShare = 32;  // of the most that deflate can hold
  const int64_t promised = c10::multiply_integers(sizes);
  if (promised <= kAlways || promised <= source.most_bytes() / kUsualShare) return;
  data::ByteSource again(source.path());
  std::vector<char> chunk(1 << 20);
  int64_t there = 0;
  while (const size_t got = again.read(chunk.data(), chunk.size())) there += static_cast<int64_t>(got);
  if (there < promised)
    throw InputError(format("the IDX file ends early: {} of the promised {} bytes", there, promised),
                     source.path(), kVerifyHint);
}

at::Tensor read_bytes(data::ByteSource& source, const std::vector<int64_t>& sizes, Arena& arena) {
  check_declared_sizes(source, sizes);
  auto tensor = arena.empty(sizes, at::kByte);
  const size_t got = source.read(static_cast<char*>(tensor.data_ptr()), tensor.numel());
  if (got < static_cast<size_t>(tensor.numel()))
    throw InputError(format("the IDX file ends early: {} of {} bytes of data", got, tensor.numel()),
                     source.path(), kVerifyHint);
  if (!source.at_end())
    throw InputError(format("the IDX file continues after its {} samples", sizes[0]), source.path(),
                     kVerifyHint);
  return tensor;
}

}  // namespace

at::Tensor read_idx_images(const std::string& path, Arena& arena) {
  data::ByteSource source(path);
  auto sizes = read_sizes(source, read_dimensions(source, 3, 4));
  if (sizes.size() == 3) sizes.insert(sizes.begin() + 1, 1);
  return read_bytes(source, sizes, arena);
}

at::Tensor read_idx_labels(const std::string& path, Arena& arena, int64_t classes) {
  data::ByteSource source(path);
  auto labels = read_bytes(source, read_sizes(source, read_dimensions(source, 1, 1)), arena);
  const auto* label = labels.const_data_ptr<uint8_t>();
  const auto* end = label + labels.numel();
  const auto* bad =
      std::find_if(label, end, [classes](uint8_t value) { return classes > 0 && value >= classes; });
  if (bad != end)
    throw InputError(format("label {} of sample {} is not one of {} classes (0 to {})", int{*bad},
                            bad - label, classes, classes - 1),
                     path, "check that the file belongs to the set, or set task.classes");
  return labels;
}

// The same operations as torchvision's, for the same bits.
at::Tensor normalize_table(const std::vector<double>& mean, const std::vector<double>& std) {
  const auto bytes = at::arange(256, at::kByte).to(at::kFloat).div(255);
  const auto column = [](const std::vector<double>& values) {
    return at::tensor(values, at::kDouble).to(at::kFloat).unsqueeze(1);
  };
  return bytes.sub(column(mean)).div_(column(std)).contiguous();
}

ImageSet::ImageSet(at::Tensor images, at::Tensor labels, at::Tensor table)
    : images_(std::move(images)), labels_(std::move(labels)), table_(std::move(table)) {
  if (images_.size(1) != table_.size(0))
    throw InputError(
        format("mean and std have {} channels, but the images have {}", table_.size(0), images_.size(1)),
        "task.mean, task.std", "give one number per channel, or set task.normalize: standard");
}

Batch ImageSet::get(at::ArrayRef<int64_t> indices, bool pinned) const {
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t channels = images_.size(1), plane = images_.size(2) * images_.size(3);
  const auto options = at::TensorOptions().pinned_memory(pinned);
  Batch batch;
  batch.input = at::empty({count, channels, images_.size(2), images_.size(3)}, options.dtype(at::kFloat));
  const auto* bytes = images_.const_data_ptr<uint8_t>();
  const float* table = table_.const_data_ptr<float>();
  float* out = batch.input.mutable_data_ptr<float>();
  for (int64_t index : indices) {
    const uint8_t* in = bytes + index * channels * plane;
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < plane; ++i) *out++ = table[c * 256 + *in++];
  }
  if (!labels_.defined()) return batch;
  batch.target = at::empty({count}, options.dtype(at::kLong));
  const auto* labels = labels_.const_data_ptr<uint8_t>();
  int64_t* target = batch.target.mutable_data_ptr<int64_t>();
  for (int64_t index : indices) *target++ = labels[index];
  return batch;
}

std::optional<DatasetTensors> ImageSet::whole() const {
  return DatasetTensors{images_, labels_.defined() ? labels_.to(at::kLong) : labels_, table_};
}

}  // namespace lockstep
