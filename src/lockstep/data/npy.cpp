#include "lockstep/data/npy.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/zip.h"

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

namespace lockstep::data {
namespace {

constexpr const char* kSaveAgain = "save it again with numpy.save, numpy.savez or numpy.savez_compressed";
constexpr const char* kConvert = "convert numbers with array.astype('float32'), and encode texts as integers";
constexpr const char* kCopyFile = "copy the file again";
constexpr size_t kMostColumns = 1 << 20;

/// A literal of Python as JSON; for other expressions, a text that is not JSON.
std::string as_json(std::string_view python) {
  std::string json;
  for (; !python.empty(); python.remove_prefix(1)) {
    const char c = python[0];
    if (c == 'L' && !json.empty() && json.back() >= '0' && json.back() <= '9')
      continue;  // Python 2 writes 3L
    if (c == ')' || c == ']' || c == '}') json.erase(json.find_last_not_of(" ,\n") + 1);
    const bool is_bool = python.starts_with("True") || python.starts_with("False");
    json += c == ')' ? ']' : c == '(' ? '[' : c == '\'' ? '"' : is_bool ? base::lower_case({&c, 1})[0] : c;
  }
  return json;
}

/// Reads an array's header. `size`: the bytes of the whole file, of which only the first may be there yet.
class ArrayReader {
 public:
  ArrayReader(std::span<const uint8_t> bytes, uint64_t size, const std::string& name)
      : input_(bytes, name), size_(size) {}

  NumberArray read() {
    constexpr uint64_t kLongest = 64 << 10;
    if (input_.left() < 10 || input_.text(6) != "\x93NUMPY") fail("it is not an array of NumPy", kSaveAgain);
    const auto version = input_.number<uint8_t>();
    input_.skip(1);
    if (version < 1 || version > 3) fail(format("its format version is {}", version), kSaveAgain);
    const uint64_t length = version == 1 ? input_.number<uint16_t>() : input_.number<uint32_t>();
    if (length > kLongest) fail("its header is too long", kSaveAgain);
    const auto header = base::parse_json(as_json(input_.text(length)));
    if (!header.is_object() || header.size() != 3 || !header.contains("descr") ||
        !header.value("fortran_order", nlohmann::json()).is_boolean() ||
        !header.value("shape", nlohmann::json()).is_array())
      fail("its header is not a dictionary with descr, fortran_order and shape", kSaveAgain);
    read_dtype(header["descr"]);
    read_shape(header["shape"]);
    const bool by_columns = header["fortran_order"] && array_.shape.size() == 2;
    array_.row_step = array_.width * (by_columns ? 1 : array_.columns());
    array_.column_step = array_.width * (by_columns ? array_.shape[0] : 1);
    array_.data = input_.take(input_.left());
    return array_;
  }

 private:
  void read_dtype(const nlohmann::json& json) {
    constexpr std::string_view kKnown = " b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 ", kOrders = "<>|=";
    const auto text = json.is_string() ? json.get<std::string>() : "";
    if (text.size() != 3 || kOrders.find(text[0]) == kOrders.npos ||
        kKnown.find(format(" {} ", text.substr(1))) == kKnown.npos)
      fail(format("its dtype is {}, not a boolean, an integer or a float of at most 8 bytes",
                  base::printable(base::as_line(json), 80)),
           kConvert);
    array_.kind = text[1];
    array_.width = static_cast<size_t>(text[2] - '0');
    array_.swapped = text[0] == '>';
  }

  void read_shape(const nlohmann::json& json) {
    const auto bytes = size_ - input_.position();
    uint64_t needed = array_.width;
    for (const auto& length : json) {
      if (!length.is_number_unsigned()) fail("its shape is damaged", kSaveAgain);
      if (length != 0u && needed > bytes / length.get<uint64_t>())
        fail(format("its header promises more than its {} bytes of data", bytes), kCopyFile);
      needed *= length.get<uint64_t>();
      array_.shape.push_back(length);
    }
    if (array_.shape.empty() || array_.shape.size() > 2)
      fail(format("it has {} dimensions, not 1 or 2", array_.shape.size()), "store one row per sample");
    if (needed == 0) fail("it is empty", kSaveAgain);
    if (needed != bytes) fail(format("it has {} bytes of data, not {}", bytes, needed), kCopyFile);
  }

  [[noreturn]] void fail(const std::string& what, const char* hint) const {
    input_.fail("the array cannot be read: " + what, hint);
  }

  checkpoint::Cursor input_;
  uint64_t size_;
  NumberArray array_;
};

/// Calls `use` with the number in its own type, or in a wider one.
template <class Use>
auto with_number(const NumberArray& array, const uint8_t* at, const Use& use) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, array.width);
  const auto unused = 64 - 8 * array.width;
  if (array.swapped) bits = __builtin_bswap64(bits) >> unused;
  if (array.kind == 'b') return use(bits != 0);
  if (array.kind == 'u') return use(bits);
  if (array.kind == 'i') return use(static_cast<int64_t>(bits << unused) >> unused);
  if (array.width == 8) return use(std::bit_cast<double>(bits));
  if (array.width == 4) return use(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return use(static_cast<float>(c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits())));
}

std::string text_of(const NumberArray& array, const uint8_t* at) {
  if (array.kind == 'b') return *at ? "True" : "False";
  if (array.kind == 'S') return {at, std::find(at, at + array.width, 0)};
  return with_number(array, at, [](auto value) { return format("{}", value); });
}

}  // namespace

bool has_named_arrays(const std::string& path) {
  const auto lower = base::lower_case(path);
  return lower.ends_with(".npz") || lower.ends_with(".safetensors");
}

bool is_array_file(const std::string& path) {
  return has_named_arrays(path) || base::lower_case(path).ends_with(".npy");
}

ArrayRows::ArrayRows(const std::string& path)
    : TextRows(path), file_(path, "the table", "check the path and its permissions") {
  named_ = has_named_arrays(path);
  if (base::lower_case(path).ends_with(".safetensors")) {
    read_safetensors();
  } else if (named_) {
    read_archive();
  } else {
    add("", ArrayReader(file_.bytes(), file_.bytes().size(), path).read());
  }
  if (places_.empty()) throw InputError("the file has no arrays", path, kSaveAgain);
  texts_.resize(places_.size());
  for (const auto& place : places_) is_text_.push_back(place.array->kind == 'S');
}

void ArrayRows::read_safetensors() {
  static constexpr std::pair<at::ScalarType, char> kKinds[] = {
      {at::kBool, 'b'},   {at::kByte, 'u'}, {at::kUInt16, 'u'}, {at::kUInt32, 'u'},
      {at::kUInt64, 'u'}, {at::kChar, 'i'}, {at::kShort, 'i'},  {at::kInt, 'i'},
      {at::kLong, 'i'},   {at::kHalf, 'f'}, {at::kFloat, 'f'},  {at::kDouble, 'f'}};
  for (const auto& [key, value] : items(checkpoint::map_safetensors(file_))) {
    const auto tensor = value.toTensor();
    const auto* const known =
        std::ranges::find(kKinds, tensor.scalar_type(), [](auto& kind) { return kind.first; });
    if (tensor.dim() < 1 || tensor.dim() > 2 || tensor.numel() == 0 || known == std::end(kKinds))
      throw InputError(format("the tensor {} is not a column", base::printable(key.toStringRef())), path_,
                       "give one row of numbers per sample in each tensor");
    NumberArray array{.data = {static_cast<const uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()},
                      .shape = tensor.sizes().vec(),
                      .kind = known->second,
                      .width = static_cast<size_t>(tensor.element_size())};
    array.row_step = array.width * static_cast<size_t>(array.columns());
    array.column_step = array.width;
    if (tensor.scalar_type() == at::kByte && tensor.dim() == 2)
      array.kind = 'S', array.width = array.row_step, array.shape.pop_back();
    add(key.toStringRef(), std::move(array));
  }
}

void ArrayRows::read_archive() {
  const checkpoint::ZipArchive archive(file_.named(), kCopyFile);
  for (const auto& record : archive.records()) {
    constexpr std::string_view kEnding = ".npy";
    auto name = record.name;
    const auto shown = format("{}: {}", path_, base::printable(name, 200));
    if (!name.ends_with(kEnding) || name.find_first_of("/\\") != name.npos || base::invalid_utf8(name))
      throw InputError("the archive has a file that is not an array of a table", shown, kSaveAgain);
    name.resize(name.size() - kEnding.size());
    auto data = record.data;
    if (record.compressed) {
      auto& unpacked = unpacked_.emplace_back();
      archive.unpack(record, [&](const void* part, size_t size) {
        const auto* bytes = static_cast<const uint8_t*>(part);
        if (unpacked.empty()) {  // before there is memory for them
          ArrayReader({bytes, size}, record.size, shown).read();
          unpacked.reserve(record.size);
        }
        unpacked.insert(unpacked.end(), bytes, bytes + size);
      });
      data = unpacked;
    } else {
      archive.bytes(record.name);  // checks the sum
    }
    add(name, ArrayReader(data, data.size(), shown).read());
  }
}

void ArrayRows::add(const std::string& name, NumberArray made) {
  const auto& array = arrays_.emplace_back(std::move(made));
  if (!named_ && array.shape.size() != 2)
    throw InputError("the array has one dimension, not two", path_, "store one row per sample");
  if (arrays_.size() > 1 && array.shape[0] != size_)
    throw InputError(format("the array {} has {} rows, but the first has {}", base::printable(name),
                            array.shape[0], size_),
                     path_, "save arrays of one length, or, for packed texts, set task.name: text");
  size_ = array.shape[0];
  if (places_.size() + static_cast<size_t>(array.columns()) > kMostColumns)
    throw InputError(format("the table has more than {} columns", kMostColumns), path_, "leave arrays out");
  for (int64_t i = 0; i < array.columns(); ++i) {
    add_column(array.shape.size() == 1 ? name : named_ ? format("{}.{}", name, i) : format("{}", i));
    places_.push_back({&array, static_cast<size_t>(i) * array.column_step});
  }
}

const uint8_t* ArrayRows::at(size_t column) const {
  const auto& [array, offset] = places_[column];
  return array->data.data() + offset + static_cast<size_t>(row_) * array->row_step;
}

float ArrayRows::number(size_t column) const {
  return with_number(*places_[column].array, at(column),
                     [](auto value) { return static_cast<float>(value); });
}

bool ArrayRows::next(std::vector<std::string_view>& fields) {
  if (++row_ >= size_) return file_.whole(false);
  fields.resize(places_.size());
  for (size_t i = 0; i < places_.size(); ++i)
    if (is_text_[i]) fields[i] = texts_[i] = text_of(*places_[i].array, at(i));
  return true;
}

std::string ArrayRows::where() const {
  return format("{}: row {}", path_, row_);
}

}  // namespace lockstep::data
