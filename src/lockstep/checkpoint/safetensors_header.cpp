// https://github.com/huggingface/safetensors#format: u64 header length, JSON, data.

#include "lockstep/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"

namespace lockstep::checkpoint {

namespace {

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

}  // namespace

std::vector<SafetensorsEntry> read_safetensors_header(Cursor& input) {
  const auto length = input.number<uint64_t>();
  if (length > kLongestHeader) input.fail("the header is longer than safetensors allows");
  const auto text = input.text(length);
  Parser parser(input);
  Json::sax_parse(text, &parser);
  return parser.take();
}

std::string safetensors_dtype(at::ScalarType dtype, const std::string& tensor) {
  for (const auto& known : kDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  throw Error(format("safetensors has no dtype for {}", c10::toString(dtype)), tensor,
              "convert the tensor, or write a .pt file");
}

}  // namespace lockstep::checkpoint
