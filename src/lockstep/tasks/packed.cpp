#include "lockstep/tasks/packed.h"

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"

namespace lockstep::tasks {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kPackAgain = "make it again: lockstep data pack CONFIG.yaml --out FILE";

bool begins_packed(const base::RegularFile& file) {
  std::array<uint8_t, 9> head{};
  return is_safetensors(std::span(head.data(), file.read_at(0, head.data(), head.size())));
}

/// Stops at values that are nested deeper than kDeepestJson, since the parser recurses once for each level.
class DepthCheck : public Json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(Json::number_integer_t) override { return true; }
  bool number_unsigned(Json::number_unsigned_t) override { return true; }
  bool number_float(Json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool key(std::string&) override { return true; }
  bool start_object(size_t) override { return ++depth_ <= base::kDeepestJson; }
  bool start_array(size_t) override { return ++depth_ <= base::kDeepestJson; }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  int depth_ = 0;
};

/// A discarded value if it is damaged or nested too deeply.
Json parse_msgpack(const at::Tensor& bytes) {
  const auto* begin = static_cast<const uint8_t*>(bytes.const_data_ptr());
  DepthCheck check;
  const bool good = Json::sax_parse(begin, begin + bytes.nbytes(), &check, Json::input_format_t::msgpack);
  return good ? Json::from_msgpack(begin, begin + bytes.nbytes()) : Json(Json::value_t::discarded);
}

}  // namespace

mode_t readable_as(const std::vector<std::string>& files) {
  mode_t mode = 0644;
  struct stat facts {};
  for (const auto& file : files) mode &= ::stat(file.c_str(), &facts) == 0 ? facts.st_mode | 0600 : 0600;
  return mode;
}

bool can_read(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none) && ::access(path.c_str(), R_OK) == 0;
}

void refuse_packed(const std::string& path) {
  if (can_read(path) && begins_packed({path, "the data file"}))
    throw InputError("the set is already packed", path, "name the files that it was packed from");
}

void PackedSet::check_keys(const nlohmann::json& now) const {
  for (const auto& [key, value] : now.items()) {
    const auto was = keys.value(key, nlohmann::json());
    if (was == value) continue;
    throw InputError(
        format("{} is {}, but the set was packed with {}", key, base::printable(base::as_line(value), 100),
               base::printable(base::as_line(was), 100)),
        path, format("set {} as it was, or pack the set again with this config", key));
  }
}

void PackedSet::require(bool holds) const {
  if (!holds) throw InputError("the packed set is damaged", path, kPackAgain);
}

at::Tensor PackedSet::tensor(size_t index, at::ScalarType type, const std::vector<int64_t>& shape) const {
  require(index < tensors.size() && tensors[index].scalar_type() == type &&
          std::ranges::equal(tensors[index].sizes(), shape,
                             [](int64_t size, int64_t wanted) { return wanted < 0 || size == wanted; }));
  return tensors[index];
}

void write_packed(const std::string& path, const PackedSet& set, mode_t mode,
                  checkpoint::StreamedBytes last) {
  // names of classes and files may not be UTF-8
  const auto about =
      Json::to_msgpack({{"version", kVersion}, {"kind", set.kind}, {"keys", set.keys}, {"facts", set.facts}});
  const auto tree = make_dict();
  // those with long elements first, so that all are aligned
  std::vector<size_t> order(set.tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return set.tensors[i].element_size(); });
  for (const size_t i : order) put(tree, format("{}", i), set.tensors[i]);
  put(tree, "lockstep_pack", at::tensor(std::vector<uint8_t>(about.begin(), about.end()), at::kByte));
  last.name = format("{}", order.size());
  try {
    checkpoint::write_large_safetensors(path, tree, {}, mode, last);
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.what(), path, "free disk space, or choose another folder");
  }
}

bool read_packed(const std::string& path, const std::string& kind, Arena& arena,
                 const std::function<void(const PackedSet& set)>& read) try {
  const base::RegularFile file(path, "the data file");
  if (!begins_packed(file)) return false;
  const auto map =
      std::make_shared<base::FileMap>(file.number(), 0, file.size(), PROT_READ, MAP_SHARED, path);
  const auto tree = [&] {
    try {
      return checkpoint::map_safetensors(map, path);
    } catch (const InputError& error) {
      throw InputError(error.what(), path, kPackAgain);
    }
  }();
  const auto found = find(tree, "lockstep_pack");
  if (!found) throw InputError("the safetensors file is not a packed set", path, kPackAgain);
  const auto about = parse_msgpack(found->toTensor());
  if (about.at("version") != kVersion)
    throw InputError("another version of lockstep packed the set", path, kPackAgain);
  PackedSet set{.kind = about.at("kind"), .keys = about.at("keys"), .facts = about.at("facts"), .path = path};
  if (set.kind != kind)
    throw InputError(format("the packed set has {}, but the task reads {}", base::printable(set.kind), kind),
                     path, "set task.name to the task that it was packed for");
  for (size_t i = 0; find(tree, format("{}", i)); ++i)
    set.tensors.push_back(get(tree, format("{}", i)).toTensor());
  arena.add_file(map, file.number());
  read(set);
  map->refuse_cut();
  return true;
} catch (const Json::exception& error) {
  throw InputError("the packed set is damaged: " + base::what_is_wrong(error), path, kPackAgain);
}

}  // namespace lockstep::tasks
