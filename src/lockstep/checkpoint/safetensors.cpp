#include "lockstep/checkpoint/safetensors.h"

#include <torch/types.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/seal.h"

// https://github.com/huggingface/safetensors#format: u64 header length, JSON, data.

namespace lockstep {
namespace {

using Json = nlohmann::json;
using checkpoint::Cursor, checkpoint::MappedFile, checkpoint::Seal;

constexpr uint64_t kLongestHeader = 100'000'000;  // as the reference implementation has it
constexpr int64_t kLargest = int64_t{1} << 48;
constexpr const char* kMetadata = "__metadata__";

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};

constexpr std::array kDtypes = {
    DtypeName{"F64", at::kDouble},
    DtypeName{"F32", at::kFloat},
    DtypeName{"F16", at::kHalf},
    DtypeName{"BF16", at::kBFloat16},
    DtypeName{"I64", at::kLong},
    DtypeName{"I32", at::kInt},
    DtypeName{"I16", at::kShort},
    DtypeName{"I8", at::kChar},
    DtypeName{"U8", at::kByte},
    DtypeName{"U16", at::kUInt16},
    DtypeName{"U32", at::kUInt32},
    DtypeName{"U64", at::kUInt64},
    DtypeName{"BOOL", at::kBool},
    DtypeName{"F8_E4M3", at::kFloat8_e4m3fn},
    DtypeName{"F8_E5M2", at::kFloat8_e5m2},
};

/// "F32"; throws Error where safetensors has no name for the dtype.
std::string safetensors_dtype(at::ScalarType dtype, const std::string& tensor) {
  for (const auto& known : kDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  throw Error(format("safetensors has no dtype for {}", c10::toString(dtype)), tensor,
              "convert the tensor, or write a .pt file");
}

/// Strides of a contiguous tensor; whoever rebuilds it checks the rest.
std::vector<int64_t> contiguous(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    if (sizes[i] > 1) stride = stride > kLargest / sizes[i] ? kLargest : stride * sizes[i];
  }
  return strides;
}

/// A tensor of the header.
struct Entry {
  std::string name;
  checkpoint::TensorClaim claim;  // its strides are a contiguous tensor's
  uint64_t begin = 0, end = 0;
};

class Reader {
 public:
  explicit Reader(const MappedFile& file) : input_(file.bytes(), file.path()) {
    if (checkpoint::check_safetensors_seal(file.bytes()) != Seal::broken) return;
    input_.fail("the file is damaged: it does not match its checksum",
                "copy the file again; if another program rewrote it, let it leave out the metadata key "
                "lockstep_crc32");
  }

  Tree read() {
    const auto entries = read_header();
    const auto data = input_.take(input_.left());
    check_cover(entries, data.size());
    auto tree = make_dict();
    for (const auto& entry : entries) {
      const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
      auto copy = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
      std::copy(bytes.begin(), bytes.end(), copy.mutable_data_ptr<uint8_t>());
      put(tree, entry.name, checkpoint::rebuild_tensor(copy, entry.claim, input_));
    }
    return tree;
  }

 private:
  /// In the order of the data.
  std::vector<Entry> read_header() {
    const auto length = input_.number<uint64_t>();
    if (length > kLongestHeader) input_.fail("the header is longer than safetensors allows");
    const auto header = base::parse_json(input_.text(length));
    if (!header.is_object()) input_.fail("the header is no JSON object, or is nested too deeply");
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
    entry.claim.strides = contiguous(entry.claim.sizes);
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
    for (const auto& known : kDtypes)
      if (*found == known.name) return known.dtype;
    input_.fail(format("tensor {} has the dtype {}, which is not known", name, found->get<std::string>()),
                "convert the tensor to F32, F16 or BF16 and save the file again");
  }

  /// Every byte belongs to exactly one tensor, and every tensor has as many as its shape says.
  void check_cover(const std::vector<Entry>& entries, uint64_t size) const {
    uint64_t covered = 0;
    for (const auto& entry : entries) {
      if (entry.begin != covered || entry.end < entry.begin || entry.end > size) {
        input_.fail(format("the data of tensor {} overlaps another's, leaves a gap or lies outside the file",
                           entry.name));
      }
      check_size(entry);
      covered = entry.end;
    }
    if (covered != size) input_.fail("the file has bytes that belong to no tensor");
  }

  void check_size(const Entry& entry) const {
    const auto bytes = entry.end - entry.begin;
    uint64_t needed = c10::elementSize(entry.claim.dtype);
    for (const auto value : entry.claim.sizes) {
      if (value == 0) needed = 0;
    }
    for (const auto value : entry.claim.sizes) {
      if (needed > 0 && static_cast<uint64_t>(value) > bytes / needed)
        wrong(entry.name, "shape: it needs more bytes");
      needed *= static_cast<uint64_t>(value);
    }
    if (needed != bytes) wrong(entry.name, "shape: its data has another size");
  }

  [[noreturn]] void wrong(const std::string& name, const std::string& what) const {
    input_.fail(format("the header is wrong: tensor {}, {}", base::printable(name), what));
  }

  Cursor input_;
};

}  // namespace

bool is_safetensors(const std::string& path) {
  const MappedFile file(path);
  Cursor input(file.bytes(), path);
  if (input.left() < 9) return false;
  const auto length = input.number<uint64_t>();
  return length <= kLongestHeader && file.bytes()[8] == '{';
}

Tree read_safetensors(const std::string& path) {
  const MappedFile file(path);
  return file.whole(Reader(file).read());
}

void write_safetensors(const std::string& path, const Tree& tensors,
                       const std::map<std::string, std::string>& metadata, mode_t mode) {
  auto header = nlohmann::ordered_json::object();
  auto& texts = header[kMetadata] = {
      {checkpoint::kSafetensorsSeal, checkpoint::kUnsealed}};  // first of all: there it is looked for
  for (const auto& [key, text] : metadata) {
    if (key != checkpoint::kSafetensorsSeal) texts[key] = text;
  }
  std::vector<at::Tensor> data;
  uint64_t end = 0;
  for (const auto& [name, value] : items(tensors)) {
    if (!value.isTensor())
      throw Error("safetensors holds tensors alone", as_string(name, "a tensor's name"),
                  "leave it out, or write a .pt file");
    data.push_back(value.toTensor().detach().to(at::kCPU).contiguous());
    const auto begin = std::exchange(end, end + data.back().nbytes());
    header[as_string(name, "a tensor's name")] = {
        {"dtype", safetensors_dtype(data.back().scalar_type(), as_string(name, "a tensor's name"))},
        {"shape", data.back().sizes().vec()},
        {"data_offsets", {begin, end}}};
  }
  auto text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  auto crc = checkpoint::crc32_of({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  for (const auto& tensor : data)
    crc = checkpoint::crc32_of({static_cast<const uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()}, crc);
  checkpoint::seal_safetensors(text, crc);
  const auto write = [&](const base::ByteSink& sink) {
    sink(text.data(), text.size());
    for (const auto& tensor : data) sink(tensor.const_data_ptr(), tensor.nbytes());
  };
  base::write_whole(path, write, /*ready=*/{}, mode);
}

}  // namespace lockstep
