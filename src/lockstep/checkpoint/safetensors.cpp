#include "lockstep/checkpoint/safetensors.h"

#include <torch/types.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/pickle_node.h"
#include "lockstep/checkpoint/seal.h"

namespace lockstep::checkpoint {
namespace {

// The header of a safetensors file, read in one pass that holds nothing but the tensors' claims.

struct SafetensorsEntry {
  std::string name;
  TensorClaim claim = {};  // its strides are a contiguous tensor's
  uint64_t begin = 0, end = 0;
};

inline constexpr uint64_t kLongestHeader = 100'000'000;  // as the reference implementation has it

// https://github.com/huggingface/safetensors#format: u64 header length, JSON, data.

using Json = nlohmann::json;

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

/// {"name": {"dtype": text, "shape": [numbers], "data_offsets": [2 numbers]}, "__metadata__": {texts}}, and
/// nothing else.
class Parser : public nlohmann::json_sax<Json> {
 public:
  explicit Parser(const Cursor& input) : input_(input) {}

  std::vector<SafetensorsEntry> take() { return std::move(entries_); }

  bool null() override { return odd(); }
  bool boolean(bool) override { return odd(); }
  bool number_integer(number_integer_t) override { return odd(); }
  bool number_float(number_float_t, const string_t&) override { return odd(); }
  bool binary(binary_t&) override { return odd(); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3 || value > static_cast<uint64_t>(kLargest)) odd();
    auto& numbers = field_ == "shape" ? entry_.claim.sizes : offsets_;
    if (numbers.size() == (field_ == "shape" ? kMostDimensions : 2)) odd();
    numbers.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& text) override {
    if (depth_ != 2 || (field_ != "dtype" && !in_metadata())) odd();
    if (!in_metadata()) set_dtype(text);
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ == 1 && !in_metadata()) begin_entry();
    if (depth_ > 1) odd();
    ++depth_;
    return true;
  }

  bool key(string_t& text) override {
    (depth_ == 1 ? name_ : field_) = std::move(text);
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && !in_metadata()) end_entry();
    --depth_;
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || (field_ != "shape" && field_ != "data_offsets")) odd();
    (field_ == "shape" ? entry_.claim.sizes : offsets_).clear();
    has_shape_ = has_shape_ || field_ == "shape";
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    input_.fail(format("the header is no JSON: {}", base::what_is_wrong(error)));
  }

 private:
  bool in_metadata() const { return name_ == kMetadata; }

  [[noreturn]] bool odd() const {
    if (depth_ == 0) input_.fail("the header is no JSON object");
    wrong(entry_.name.empty() ? name_ : entry_.name, "dtype, shape or data_offsets");
  }
  [[noreturn]] void wrong(const std::string& name, const std::string& what) const {
    input_.fail(format("the header is wrong: tensor {}, {}", name, what));
  }

  void begin_entry() {
    entry_ = {.name = name_};
    offsets_.clear();
    has_dtype_ = has_shape_ = false;
    field_.clear();
  }

  void set_dtype(const std::string& dtype) {
    const auto known =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& row) { return dtype == row.name; });
    if (known == kDtypes.end()) {
      input_.fail(format("tensor {} has the dtype {}, which is not known", name_, dtype),
                  "convert the tensor to F32, F16 or BF16 and save the file again");
    }
    entry_.claim.dtype = known->dtype;
    has_dtype_ = true;
  }

  void end_entry() {
    if (!has_dtype_ || !has_shape_ || offsets_.size() != 2) odd();
    if (!names_.insert(name_).second) wrong(name_, "which stands there twice");
    entry_.begin = static_cast<uint64_t>(offsets_[0]);
    entry_.end = static_cast<uint64_t>(offsets_[1]);
    entry_.claim.strides = contiguous(entry_.claim.sizes);
    entries_.push_back(std::move(entry_));
  }

  const Cursor& input_;
  int depth_ = 0;  // 1: the names, 2: a tensor's fields, 3: a field's numbers
  std::string name_, field_;
  SafetensorsEntry entry_;
  std::vector<int64_t> offsets_;
  bool has_dtype_ = false, has_shape_ = false;
  std::vector<SafetensorsEntry> entries_;
  std::unordered_set<std::string> names_;
};

/// The entries in the header's order, from the file's beginning; the cursor is left where the data begins.
/// InputError for what is no such header. Offsets and sizes are numbers below 2^48, and no more is checked.
std::vector<SafetensorsEntry> read_safetensors_header(Cursor& input) {
  const auto length = input.number<uint64_t>();
  if (length > kLongestHeader) input.fail("the header is longer than safetensors allows");
  const auto text = input.text(length);
  Parser parser(input);
  Json::sax_parse(text, &parser);
  return parser.take();
}

/// "F32"; throws Error where safetensors has no name for the dtype.
std::string safetensors_dtype(at::ScalarType dtype, const std::string& tensor) {
  for (const auto& known : kDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  throw Error(format("safetensors has no dtype for {}", c10::toString(dtype)), tensor,
              "convert the tensor, or write a .pt file");
}

}  // namespace

}  // namespace lockstep::checkpoint

namespace lockstep {

// https://github.com/huggingface/safetensors#format: u64 header length, JSON, data.

namespace {

using OrderedJson = nlohmann::ordered_json;

class Reader {
 public:
  explicit Reader(const checkpoint::MappedFile& file) : input_(file.bytes(), file.path()) {
    if (checkpoint::check_safetensors_seal(file.bytes()) != checkpoint::Seal::broken) return;
    input_.fail("the file is damaged: it does not match its checksum",
                "copy the file again; if another program rewrote it, let it leave out the metadata key "
                "lockstep_crc32");
  }

  Tree read() {
    const auto entries = checkpoint::read_safetensors_header(input_);
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
  /// Every byte belongs to exactly one tensor, and every tensor has as many as its shape says.
  void check_cover(std::vector<checkpoint::SafetensorsEntry> entries, uint64_t size) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const checkpoint::SafetensorsEntry& a, const checkpoint::SafetensorsEntry& b) {
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

  void check_size(const checkpoint::SafetensorsEntry& entry) {
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

  checkpoint::Cursor input_;
};

}  // namespace

bool is_safetensors(const std::string& path) {
  const checkpoint::MappedFile file(path);
  checkpoint::Cursor input(file.bytes(), path);
  if (input.left() < 9) return false;
  const auto length = input.number<uint64_t>();
  return length <= checkpoint::kLongestHeader && file.bytes()[8] == '{';
}

Tree read_safetensors(const std::string& path) {
  const checkpoint::MappedFile file(path);
  return file.whole(Reader(file).read());
}

void write_safetensors(const std::string& path, const Tree& tensors,
                       const std::map<std::string, std::string>& metadata) {
  auto header = OrderedJson::object();
  auto& texts = header["__metadata__"] = {
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
        {"dtype",
         checkpoint::safetensors_dtype(data.back().scalar_type(), as_string(name, "a tensor's name"))},
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
  base::write_whole(path, [&](const base::ByteSink& sink) {
    sink(text.data(), text.size());
    for (const auto& tensor : data) sink(tensor.const_data_ptr(), tensor.nbytes());
  });
}

}  // namespace lockstep
