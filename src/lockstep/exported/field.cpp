// torch/_export/serde/schema.py
#include "lockstep/exported/field.h"

#include <limits>
#include <map>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::exported {
namespace {

const std::map<int64_t, at::ScalarType>& scalar_types() {
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
  return known;
}

const std::map<std::string, at::DeviceType>& device_types() {
  static const std::map<std::string, at::DeviceType> known = {
      {"cpu", at::kCPU}, {"cuda", at::kCUDA}, {"meta", at::kMeta}};
  return known;
}

template <class Table, class Key>
auto value_in(const Table& table, const Key& key, const char* what) {
  const auto found = table.find(key);
  if (found == table.end()) throw Refusal(format("{} {} is not known", what, key));
  return found->second;
}

}  // namespace

Field only_field(const Json& json) {
  if (!json.is_object()) throw Refusal("a value of the graph is no object");
  auto found = json.end();
  for (auto at = json.begin(); at != json.end(); ++at) {
    if (at->is_null()) continue;
    if (found != json.end()) throw Refusal("a value of the graph is of two kinds at once");
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
    throw Refusal("a whole number of the graph is something else");
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
  if (kind != "as_int") throw Refusal("a weight has a size that is not fixed");
  return whole_number(value);
}

at::ScalarType scalar_type_of(const Json& json) {
  return value_in(scalar_types(), whole_number(json), "dtype");
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
  const auto type = value_in(device_types(), shown(text_at(json, "type")), "device");
  const auto index = json.find("index");
  const bool has_index = type == at::kCUDA && index != json.end() && !index->is_null();
  const auto number = has_index ? whole_number(*index) : -1;
  if (number < -1 || number > std::numeric_limits<c10::DeviceIndex>::max())
    throw Refusal(format("device number {} is not possible", number));
  return {type, static_cast<c10::DeviceIndex>(number)};
}

}  // namespace lockstep::exported
