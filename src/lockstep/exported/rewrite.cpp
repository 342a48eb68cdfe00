// torch/export/pt2_archive/_package.py: data/weights/model_weights_config.json says which record holds which
// tensor; a record is the bytes of a storage, which several tensors may share.
#include "lockstep/exported/rewrite.h"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/checkpoint/archive_writer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/exported/refusing.h"
#include "lockstep/exported/weights.h"

namespace lockstep::exported {
namespace {

constexpr const char* kWeightsFolder = "data/weights/";
constexpr const char* kWeightsConfig = "data/weights/model_weights_config.json";

/// What replaces a record, by its name.
using Replaced = std::map<std::string, c10::Storage>;

void fill(const Weights& weights, const Tree& state_dict, const std::string& given) {
  auto wanted = make_dict();
  for (const auto& [name, tensor] : weights) put(wanted, name, tensor);
  check_state_dict(wanted, state_dict, given);
  for (const auto& [name, tensor] : weights)
    tensor.detach().copy_(find(state_dict, name)->toTensor().detach());
}

Replaced replaced_records(const Archive& archive, const Weights& weights) {
  Replaced records;
  const auto json = archive.json(kWeightsConfig);
  for (const auto& [name, entry] : json.at("config").items())
    records.emplace(kWeightsFolder + text_at(entry, "path_name"), weights.at(name).storage());
  return records;
}

/// Each weight lies in a copy of its record: what no tensor shows stays as it was.
Replaced filled_records(const Archive& archive, const Tree& state_dict, const std::string& given) {
  return refusing(archive.path(), [&] {
    const auto weights = read_weights(archive);
    fill(weights, state_dict, given);
    return replaced_records(archive, weights);
  });
}

void copy_records(const Archive& archive, const Replaced& replaced,
                  caffe2::serialize::PyTorchStreamWriter& writer) {
  for (const auto& record : archive.records()) {
    const auto name = archive.short_name(record);
    if (const auto found = replaced.find(name); found != replaced.end()) {
      writer.writeRecord(name, found->second.data(), found->second.nbytes());
    } else {
      const auto bytes = archive.bytes(name);
      writer.writeRecord(name, bytes.data(), bytes.size());
    }
  }
}

}  // namespace

void check_rewrite(const std::string& original, const std::string& path, const std::string& hint) {
  std::error_code none;
  if (std::filesystem::equivalent(original, path, none))
    throw InputError("this is the exported model itself, which stays as it is", path, hint);
  base::check_output(path, hint);
  if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none))
    throw InputError("a pipe or a device is in the file's place", path, hint);
  static_cast<void>(Archive(original));
}

void rewrite_weights(const std::string& original, const Tree& state_dict, const std::string& path,
                     const std::string& given) {
  check_rewrite(original, path, "name another file");
  const Archive archive(original);
  const auto replaced = filled_records(archive, state_dict, given.empty() ? original : given);
  base::write_whole(path, [&](const base::ByteSink& sink) {
    // which makes the serialization_id anew
    checkpoint::write_archive(sink, [&](auto& writer) { copy_records(archive, replaced, writer); });
    archive.whole(true);
  });
}

}  // namespace lockstep::exported
