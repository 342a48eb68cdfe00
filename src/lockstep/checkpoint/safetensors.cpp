#include "lockstep/checkpoint/safetensors.h"

#include <torch/types.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/zip.h"

// https://github.com/huggingface/safetensors#format: u64 header length, JSON, data.

namespace lockstep {
namespace {

using Json = nlohmann::json;
using checkpoint::Cursor, checkpoint::MappedFile, checkpoint::crc32_of;

constexpr uint64_t kLongestHeader = 100'000'000;  // as the reference implementation has it
constexpr int64_t kLargest = int64_t{1} << 48;
constexpr const char* kMetadata = "__metadata__";

constexpr std::pair<const char*, at::ScalarType> kDtypes[] = {
    {"F64", at::kDouble},         {"F32", at::kFloat},
    {"F16", at::kHalf},           {"BF16", at::kBFloat16},
    {"I64", at::kLong},           {"I32", at::kInt},
    {"I16", at::kShort},          {"I8", at::kChar},
    {"U64", at::kUInt64},         {"U32", at::kUInt32},
    {"U16", at::kUInt16},         {"U8", at::kByte},
    {"BOOL", at::kBool},          {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2}};

/// "F32"; throws Error where safetensors has no name for the dtype.
std::string safetensors_dtype(at::ScalarType dtype, const std::string& tensor) {
  for (const auto& [name, known] : kDtypes)
    if (known == dtype) return name;
  throw Error(format("safetensors has no dtype for {}", c10::toString(dtype)), tensor,
              "convert the tensor, or write a .pt file");
}

/// Sets the strides of a contiguous tensor and returns its number of elements, at most kLargest.
int64_t make_contiguous(checkpoint::TensorClaim& claim) {
  claim.strides.resize(claim.sizes.size());
  int64_t stride = 1;
  bool is_empty = false;
  for (size_t i = claim.sizes.size(); i-- > 0;) {
    const auto size = claim.sizes[i];
    claim.strides[i] = stride;
    is_empty |= size == 0;
    if (size > 1) stride = stride > kLargest / size ? kLargest : stride * size;
  }
  return is_empty ? 0 : stride;
}

// The checksum is the first entry of the metadata: over the whole file, with zeros for its own digits.

constexpr const char* kChecksumKey = "lockstep_crc32";
constexpr std::string_view kNoChecksum = "00000000";
constexpr size_t kHeaderLength = 8;

/// The beginning of a file with our checksum, after the header's length.
std::string checksum_prefix() {
  return format(R"({{"{}":{{"{}":")", kMetadata, kChecksumKey);
}

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// A tensor of the header.
struct Entry {
  std::string name;
  checkpoint::TensorClaim claim;  // contiguous
  uint64_t needed = 0;            // bytes
  uint64_t begin = 0, end = 0;
};

class Reader {
 public:
  Reader(std::span<const uint8_t> file, const std::string& name) : file_(file), input_(file, name) {}

  /// Whether the file has our checksum. InputError if it does not match.
  bool check_checksum() const {
    const auto prefix = checksum_prefix();
    const auto at = kHeaderLength + prefix.size(), behind = at + kNoChecksum.size();
    const std::string_view text(reinterpret_cast<const char*>(file_.data()), file_.size());
    if (text.size() < behind || text.substr(kHeaderLength, prefix.size()) != prefix) return false;
    auto crc = crc32_of(file_.first(at));
    crc = crc32_of(bytes_of(kNoChecksum), crc);
    crc = crc32_of(file_.subspan(behind), crc);
    if (text.substr(at, kNoChecksum.size()) == format("{:08x}", crc)) return true;
    input_.fail("the file is damaged: it does not match its checksum",
                format("copy the file again; a program that rewrites it must remove the metadata key {}",
                       kChecksumKey));
  }

  /// `as_tensor` makes a tensor of bytes from a part of the file.
  template <class AsTensor>
  Tree read(const AsTensor& as_tensor) {
    const auto entries = read_header();
    const auto data = input_.take(input_.left());
    check_cover(entries, data.size());
    auto tree = make_dict();
    for (const auto& entry : entries) {
      const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
      put(tree, entry.name, checkpoint::rebuild_tensor(as_tensor(bytes), entry.claim, input_));
    }
    return tree;
  }

 private:
  /// In the order of the data.
  std::vector<Entry> read_header() {
    const auto length = input_.number<uint64_t>();
    if (length > kLongestHeader) input_.fail("the header is longer than safetensors allows");
    const auto header = base::parse_json(input_.text(length));
    if (!header.is_object()) input_.fail("the header is not a JSON object or is nested too deeply");
    std::vector<Entry> entries;
    for (const auto& [name, json] : header.items())
      if (name != kMetadata) entries.push_back(entry_of(name, json));
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    return entries;
  }

  /// {"dtype": text, "shape": [numbers], "data_offsets": [2 numbers]}
  Entry entry_of(const std::string& name, const Json& json) const {
    if (!json.is_object() || json.size() != 3) wrong(name, "dtype, shape or data_offsets");
    const auto offsets = numbers(name, json, "data_offsets");
    if (offsets.size() != 2) wrong(name, "data_offsets");
    Entry entry{.name = name,
                .claim = {.dtype = dtype_of(name, json), .sizes = numbers(name, json, "shape")},
                .begin = static_cast<uint64_t>(offsets[0]),
                .end = static_cast<uint64_t>(offsets[1])};
    if (entry.claim.sizes.size() > checkpoint::kMostDimensions)
      wrong(name, "shape: it has too many dimensions");
    entry.needed = static_cast<uint64_t>(make_contiguous(entry.claim)) * c10::elementSize(entry.claim.dtype);
    return entry;
  }

  std::vector<int64_t> numbers(const std::string& name, const Json& json, const char* field) const {
    const auto found = json.find(field);
    if (found == json.end() || !found->is_array()) wrong(name, field);
    std::vector<int64_t> values;
    for (const auto& value : *found) {
      if (!value.is_number_unsigned() || value > kLargest) wrong(name, field);
      values.push_back(value.get<int64_t>());
    }
    return values;
  }

  at::ScalarType dtype_of(const std::string& name, const Json& json) const {
    const auto found = json.find("dtype");
    if (found == json.end() || !found->is_string()) wrong(name, "dtype");
    for (const auto& [known, dtype] : kDtypes)
      if (*found == known) return dtype;
    input_.fail(format("tensor {} has the dtype {}, which is not supported", name, found->get<std::string>()),
                "convert the tensor to F32, F16 or BF16 and save the file again");
  }

  /// Every byte belongs to exactly one tensor, and every tensor has as many as its shape says.
  void check_cover(const std::vector<Entry>& entries, uint64_t size) const {
    uint64_t covered = 0;
    for (const auto& entry : entries) {
      if (entry.begin != covered || entry.end < entry.begin || entry.end > size)
        input_.fail(format("the data of tensor {} overlaps another's, leaves a gap or lies outside the file",
                           entry.name));
      if (entry.needed != entry.end - entry.begin) wrong(entry.name, "shape: its data has another size");
      covered = entry.end;
    }
    if (covered != size) input_.fail("the file has bytes that belong to no tensor");
  }

  [[noreturn]] void wrong(const std::string& name, const std::string& what) const {
    input_.fail(format("the header is wrong: tensor {}, {}", base::printable(name), what));
  }

  std::span<const uint8_t> file_;
  Cursor input_;
};

}  // namespace

bool is_safetensors(std::span<const uint8_t> file) {
  Cursor input(file, "");
  return file.size() > kHeaderLength && input.number<uint64_t>() <= kLongestHeader &&
         file[kHeaderLength] == '{';
}

Tree read_safetensors(std::span<const uint8_t> file, const std::string& name, bool& has_checksum) {
  Reader reader(file, name);
  has_checksum = reader.check_checksum();
  return reader.read(checkpoint::copy_of);
}

Tree checkpoint::map_safetensors(const MappedFile& file) {
  Reader reader(file.bytes(), file.path());
  reader.check_checksum();
  return reader.read([&](std::span<const uint8_t> bytes) { return checkpoint::view_of(file.map(), bytes); });
}

Tree read_safetensors(const std::string& path) {
  const MappedFile file(path);
  bool has_checksum = false;
  return file.whole(read_safetensors(file.bytes(), path, has_checksum));
}

void write_safetensors(const std::string& path, const Tree& tensors,
                       const std::map<std::string, std::string>& metadata, mode_t mode) {
  auto header = nlohmann::ordered_json::object();
  auto& texts = header[kMetadata] = {{kChecksumKey, std::string(kNoChecksum)}};
  for (const auto& [key, text] : metadata)
    if (key != kChecksumKey) texts[key] = text;
  std::vector<at::Tensor> data;
  uint64_t end = 0;
  for (const auto& [key, value] : items(tensors)) {
    const auto name = as_string(key, "a tensor's name");
    if (!value.isTensor())
      throw Error("a safetensors file can only hold tensors", name, "leave it out, or write a .pt file");
    data.push_back(value.toTensor().detach().to(at::kCPU).contiguous());
    const auto begin = std::exchange(end, end + data.back().nbytes());
    header[name] = {{"dtype", safetensors_dtype(data.back().scalar_type(), name)},
                    {"shape", data.back().sizes().vec()},
                    {"data_offsets", {begin, end}}};
  }
  auto text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  auto crc = crc32_of(bytes_of(text));
  for (const auto& tensor : data)
    crc = crc32_of({static_cast<const uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()}, crc);
  text.replace(kHeaderLength + checksum_prefix().size(), kNoChecksum.size(), format("{:08x}", crc));
  const auto write = [&](const base::ByteSink& sink) {
    sink(text.data(), text.size());
    for (const auto& tensor : data) sink(tensor.const_data_ptr(), tensor.nbytes());
  };
  base::write_whole(path, write, /*ready=*/{}, mode);
}

}  // namespace lockstep
