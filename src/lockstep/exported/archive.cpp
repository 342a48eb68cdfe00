#include "lockstep/exported/archive.h"

#include <limits>
#include <map>

#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"

namespace lockstep::exported {

// torch/_export/serde/schema.py

namespace {

template <class Table, class Key>
auto value_in(const Table& table, const Key& key, const char* what) {
  const auto found = table.find(key);
  if (found == table.end()) throw Refusal(format("{} {} is not supported", what, key));
  return found->second;
}

}  // namespace

Field only_field(const Json& json) {
  if (!json.is_object()) throw Refusal("a value of the graph is not an object");
  auto found = json.end();
  for (auto at = json.begin(); at != json.end(); ++at) {
    if (at->is_null()) continue;
    if (found != json.end()) throw Refusal("a value of the graph has two kinds");
    found = at;
  }
  if (found == json.end()) throw Refusal("a value of the graph is empty");
  return {found.key(), *found};
}

std::string shown(const std::string& name) {
  return base::printable(name);
}

std::string text_at(const Json& json, const char* key) {
  return json.at(key).get<std::string>();
}

int64_t whole_number(const Json& json) {
  constexpr auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > most))
    throw Refusal("a value of the graph is not a whole number");
  return json.get<int64_t>();
}

double number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  static const std::map<std::string, double> known = {
      {"Infinity", infinity}, {"-Infinity", -infinity}, {"NaN", std::numeric_limits<double>::quiet_NaN()}};
  const auto found = known.find(json.get<std::string>());
  if (found == known.end())
    throw Refusal("a number of the graph is a text: " + shown(json.get<std::string>()));
  return found->second;
}

int64_t fixed_size(const Json& json) {
  const auto [kind, value] = only_field(json);
  if (kind != "as_int") throw Refusal("a weight has a size that varies");
  return whole_number(value);
}

at::ScalarType scalar_type_of(const Json& json) {
  static const std::map<int64_t, at::ScalarType> known = {{1, at::kByte},
                                                          {2, at::kChar},
                                                          {3, at::kShort},
                                                          {4, at::kInt},
                                                          {5, at::kLong},
                                                          {6, at::kHalf},
                                                          {7, at::kFloat},
                                                          {8, at::kDouble},
                                                          {9, at::kComplexHalf},
                                                          {10, at::kComplexFloat},
                                                          {11, at::kComplexDouble},
                                                          {12, at::kBool},
                                                          {13, at::kBFloat16},
                                                          {28, at::kUInt16},
                                                          {29, at::kFloat8_e4m3fn},
                                                          {30, at::kFloat8_e5m2},
                                                          {31, at::kFloat8_e4m3fnuz},
                                                          {32, at::kFloat8_e5m2fnuz},
                                                          {34, at::kUInt32},
                                                          {35, at::kUInt64}};
  return value_in(known, whole_number(json), "dtype");
}

at::MemoryFormat memory_format_of(const Json& json) {
  static const std::map<int64_t, at::MemoryFormat> known = {{1, at::MemoryFormat::Contiguous},
                                                            {2, at::MemoryFormat::ChannelsLast},
                                                            {3, at::MemoryFormat::ChannelsLast3d},
                                                            {4, at::MemoryFormat::Preserve}};
  return value_in(known, whole_number(json), "memory format");
}

at::Layout layout_of(const Json& json) {
  constexpr int kStrided = 7;
  if (whole_number(json) != kStrided) throw Refusal("a tensor of the graph is sparse");
  return at::kStrided;
}

at::Device device_of(const Json& json) {
  static const std::map<std::string, at::DeviceType> known = {
      {"cpu", at::kCPU}, {"cuda", at::kCUDA}, {"meta", at::kMeta}};
  const auto type = value_in(known, shown(text_at(json, "type")), "device");
  const auto index = json.find("index");
  const bool has_index = type == at::kCUDA && index != json.end() && !index->is_null();
  const auto number = has_index ? whole_number(*index) : -1;
  if (number < -1 || number > std::numeric_limits<c10::DeviceIndex>::max())
    throw Refusal(format("invalid device number {}", number));
  return {type, static_cast<c10::DeviceIndex>(number)};
}

// https://docs.pytorch.org/docs/stable/export/pt2_archive.html: a zip of stored records in one folder.

namespace {

constexpr size_t kMostText = size_t{64} << 20;
constexpr const char* kCopy = "copy the file again, or export it again";

}  // namespace

Archive::Archive(const std::string& path)
    : file_(path, "the exported model", "name the .pt2 file that torch.export.save wrote"), zip_(open()) {
  check_layout();
}

checkpoint::ZipArchive Archive::open() const {
  if (!checkpoint::is_zip(file_.bytes())) refuse("the file was not written by torch.export.save");
  return checkpoint::ZipArchive(file_.named(), kCopy);
}

void Archive::check_layout() const {
  if (zip_.has("serialized_exported_program.json") || zip_.has("serialized_exported_program"))
    refuse("the file is from a torch before 2.9, which wrote another layout",
           std::string("with torch 2.9 or newer ") + kExportAgain);
  if (zip_.has("constants.pkl"))
    refuse("this is a TorchScript module",
           "set model.name to torchscript for it, or export the model with torch.export.save");
  if (zip_.has("data.pkl"))
    refuse("the file was written by torch.save and holds tensors but no model",
           "export the model with torch.export.save");
  if (!zip_.has("archive_format")) refuse("the file was not written by torch.export.save");
  expect("archive_format", "pt2");
  expect("archive_version", "0");
  expect("byteorder", "little");
  if (!zip_.has("models/model.json"))
    refuse("the archive holds no model called \"model\"",
           "torch.export.save writes one; a package of AOTInductor cannot be trained");
}

void Archive::expect(const std::string& name, const std::string& wanted) const {
  if (!zip_.has(name)) return;
  if (const auto found = zip_.text(name); found != wanted)
    refuse(format("the archive's {} is \"{}\"; lockstep reads \"{}\"", name, base::printable(found), wanted));
}

std::string Archive::digest(const std::string& name) const {
  constexpr size_t kDigits = 16;
  const auto found = zip_.bytes(name);
  base::Sha256 sum;
  sum.add(found.data(), found.size());
  return sum.hex().substr(0, kDigits);
}

nlohmann::json Archive::json(const std::string& name) const {
  if (zip_.bytes(name).size() > kMostText)
    refuse(format("{} is larger than {} MiB", base::printable(name), kMostText >> 20));
  auto parsed = base::parse_json(zip_.text(name));
  if (!parsed.is_object()) refuse(format("{} is not JSON, or is nested too deeply", base::printable(name)));
  return parsed;
}

void Archive::refuse(const std::string& what, const std::string& hint) const {
  throw InputError(what, path(), hint);
}

}  // namespace lockstep::exported
