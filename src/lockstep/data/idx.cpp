#include "lockstep/data/idx.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/data/rows/byte_source.h"

namespace lockstep {
namespace {

constexpr const char* kVerifyHint =
    "fetch or copy the file again; `lockstep data verify` checks the known sets";

uint32_t big_endian(const unsigned char* b) {
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
}

const char* type_name(int type) {
  static const std::map<int, const char*> names{
      {0x09, "signed bytes"}, {0x0b, "shorts"}, {0x0c, "ints"}, {0x0d, "floats"}, {0x0e, "doubles"}};
  const auto found = names.find(type);
  return found == names.end() ? "no known type" : found->second;
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
  if (magic >> 16 != 0) {
    throw InputError(format("not an IDX file: it begins with {:#010x}, not with {:#06x}..", magic, 0x0008),
                     source.path(), kVerifyHint);
  }
  if (type != 0x08) {
    throw InputError(
        format("the IDX file holds {} (type {:#04x}), not unsigned bytes", type_name(type), type),
        source.path(), "write the set as unsigned bytes (type 0x08)");
  }
  if (dimensions < least || dimensions > most) {
    throw InputError(format("the IDX file has {} dimensions where {} have {}", dimensions,
                            least == 1 ? "labels" : "images", least == 1 ? "1" : "3 or 4"),
                     source.path(), "are the images' and the labels' files swapped?");
  }
  return dimensions;
}

std::vector<int64_t> read_sizes(data::ByteSource& source, int dimensions) {
  std::vector<int64_t> sizes;
  int64_t bytes = 1;
  for (int i = 0; i < dimensions; ++i) {
    sizes.push_back(read_word(source));
    if (sizes.back() == 0) {
      throw InputError(i == 0 ? "the IDX file holds no samples" : "the IDX file has images of no size",
                       source.path(), kVerifyHint);
    }
    // Checked at each step: the product stays far below the limit of int64.
    bytes *= sizes.back();
    if (bytes > source.most_bytes()) {
      throw InputError(
          format("the IDX header promises {} and more bytes of data, which the file cannot hold", bytes),
          source.path(), kVerifyHint);
    }
  }
  return sizes;
}

/// A small gzipped file can promise a thousand times its size: before there is memory for that, the file is
/// unpacked into nothing once.
void check_promise(const data::ByteSource& source, const std::vector<int64_t>& sizes) {
  constexpr int64_t kAlways = 64 << 20, kUsualShare = 32;  // of the most that deflate can hold
  const int64_t promised = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  if (promised <= kAlways || promised <= source.most_bytes() / kUsualShare) return;
  data::ByteSource again(source.path());
  std::vector<char> chunk(1 << 20);
  int64_t there = 0;
  while (const size_t got = again.read(chunk.data(), chunk.size())) there += static_cast<int64_t>(got);
  if (there < promised)
    throw InputError(format("the IDX file ends early: {} bytes where {} are promised", there, promised),
                     source.path(), kVerifyHint);
}

at::Tensor read_bytes(data::ByteSource& source, const std::vector<int64_t>& sizes, Arena& arena) {
  check_promise(source, sizes);
  auto tensor = arena.empty(sizes, at::kByte);
  const size_t got = source.read(static_cast<char*>(tensor.data_ptr()), tensor.numel());
  if (got < static_cast<size_t>(tensor.numel())) {
    throw InputError(format("the IDX file ends early: {} of {} bytes of data", got, tensor.numel()),
                     source.path(), kVerifyHint);
  }
  if (!source.at_end()) {
    throw InputError(format("the IDX file goes on after its {} samples", sizes[0]), source.path(),
                     kVerifyHint);
  }
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
  if (bad != end) {
    throw InputError(format("label {} of sample {} where there are {} classes (0 to {})", int{*bad},
                            bad - label, classes, classes - 1),
                     path, "is it the set's own file? for images of your own see task.classes");
  }
  return labels;
}

void check_idx_pair(const at::Tensor& images, const std::string& images_path, const at::Tensor& labels,
                    const std::string& labels_path) {
  if (images.size(0) == labels.size(0)) return;
  throw InputError(format("{} images but {} labels", images.size(0), labels.size(0)),
                   images_path + " and " + labels_path, "both files must come from the same set");
}

}  // namespace lockstep
