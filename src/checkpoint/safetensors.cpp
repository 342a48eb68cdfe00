// https://github.com/huggingface/safetensors#format: u64 header length, JSON, data.

#include "checkpoint/safetensors.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/whole_file.h"
#include "checkpoint/cursor.h"
#include "checkpoint/file.h"
#include "checkpoint/rebuild.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLongestHeader = 100'000'000;  // as the reference implementation has it

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

std::string name_of(at::ScalarType dtype, const std::string& tensor) {
  for (const auto& known : kDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  throw Error(format("safetensors has no dtype for {}", c10::toString(dtype)), tensor,
              "convert the tensor, or write a .pt file");
}

struct Entry {
  std::string name;
  TensorClaim claim = {};
  uint64_t begin = 0, end = 0;
};

class Reader {
 public:
  explicit Reader(const MappedFile& file) : input_(file.bytes(), file.path()) {}

  Tree read() {
    const auto entries = read_header();
    const auto data = input_.take(input_.left());
    check_cover(entries, data.size());
    auto tree = make_dict();
    for (const auto& entry : entries) {
      const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
      auto copy = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
      std::copy(bytes.begin(), bytes.end(), copy.mutable_data_ptr<uint8_t>());
      put(tree, entry.name, rebuild_tensor(copy, entry.claim, input_));
    }
    return tree;
  }

 private:
  std::vector<Entry> read_header() {
    const auto length = input_.number<uint64_t>();
    if (length > kLongestHeader) input_.fail("the header is longer than safetensors allows");
    Json header;
    try {
      header = Json::parse(input_.text(length), /*callback=*/nullptr, /*exceptions=*/true);
    } catch (const Json::exception& error) {
      input_.fail(format("the header is no JSON: {}", error.what()));
    }
    if (!header.is_object()) input_.fail("the header is no JSON object");
    std::vector<Entry> entries;
    for (const auto& [name, facts] : header.items()) {
      if (name != "__metadata__") entries.push_back(read_entry(name, facts));
    }
    return entries;
  }

  Entry read_entry(const std::string& name, const Json& facts) {
    try {
      Entry entry{.name = name, .claim = {.dtype = dtype_of(facts.at("dtype").get<std::string>(), name)}};
      for (const auto& size : facts.at("shape")) entry.claim.sizes.push_back(count(size, name));
      const auto& offsets = facts.at("data_offsets");
      if (offsets.size() != 2) wrong(name, "data_offsets");
      entry.begin = static_cast<uint64_t>(count(offsets[0], name));
      entry.end = static_cast<uint64_t>(count(offsets[1], name));
      entry.claim.strides = contiguous(entry.claim.sizes);
      return entry;
    } catch (const Json::exception&) {
      wrong(name, "dtype, shape or data_offsets");
    }
  }

  at::ScalarType dtype_of(const std::string& dtype, const std::string& name) {
    for (const auto& known : kDtypes) {
      if (dtype == known.name) return known.dtype;
    }
    input_.fail(format("tensor {} has the dtype {}, which is not known", name, dtype),
                "convert the tensor to F32, F16 or BF16 and save the file again");
  }

  int64_t count(const Json& value, const std::string& name) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > (uint64_t{1} << 48))
      wrong(name, "shape or data_offsets");
    return value.get<int64_t>();
  }

  /// Strides of a contiguous tensor; sizes are below 2^48 and rebuild_tensor checks the rest.
  static std::vector<int64_t> contiguous(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> strides(sizes.size());
    int64_t stride = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      strides[i] = stride;
      if (sizes[i] > 1)
        stride = stride > (int64_t{1} << 48) / sizes[i] ? int64_t{1} << 48 : stride * sizes[i];
    }
    return strides;
  }

  /// Every byte belongs to exactly one tensor, and every tensor has as many as its shape says.
  void check_cover(std::vector<Entry> entries, uint64_t size) {
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
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

  void check_size(const Entry& entry) {
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

  [[noreturn]] void wrong(const std::string& name, const std::string& what) {
    input_.fail(format("the header is wrong: tensor {}, {}", name, what));
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
  return Reader(file).read();
}

void write_safetensors(const std::string& path, const Tree& tensors,
                       const std::map<std::string, std::string>& metadata) {
  auto header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<at::Tensor> data;
  uint64_t end = 0;
  for (const auto& [name, value] : items(tensors)) {
    if (!value.isTensor())
      throw Error("safetensors holds tensors alone", as_string(name, "a tensor's name"),
                  "leave it out, or write a .pt file");
    data.push_back(value.toTensor().detach().to(at::kCPU).contiguous());
    const auto begin = std::exchange(end, end + data.back().nbytes());
    header[as_string(name, "a tensor's name")] = {
        {"dtype", name_of(data.back().scalar_type(), as_string(name, "a tensor's name"))},
        {"shape", data.back().sizes().vec()},
        {"data_offsets", {begin, end}}};
  }
  auto text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  write_whole(path, [&](const ByteSink& sink) {
    const uint64_t length = text.size();
    sink(&length, sizeof length);
    sink(text.data(), text.size());
    for (const auto& tensor : data) sink(tensor.const_data_ptr(), tensor.nbytes());
  });
}

}  // namespace lockstep
