#include "lockstep/exported/weights.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/zip.h"
#include "lockstep/exported/archive.h"

namespace lockstep::exported {

// torch/export/pt2_archive/_package.py: data/weights/model_weights_config.json says which record holds which
// tensor; a record is the bytes of a storage, which several tensors may share.

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
  for (const auto& record : archive.zip().records()) {
    if (const auto found = replaced.find(record.name); found != replaced.end()) {
      writer.writeRecord(record.name, found->second.data(), found->second.nbytes());
    } else {
      const auto bytes = archive.zip().bytes(record.name);
      writer.writeRecord(record.name, bytes.data(), bytes.size());
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

namespace {

class Reader {
 public:
  Reader(const Archive& archive, std::string folder) : archive_(archive), folder_(std::move(folder)) {}

  Weights read(const std::string& config) {
    if (!archive_.zip().has(folder_ + config)) return {};
    Weights weights;
    const auto json = archive_.json(folder_ + config);
    for (const auto& [name, entry] : json.at("config").items()) weights.emplace(name, read_one(name, entry));
    return weights;
  }

 private:
  at::Tensor read_one(const std::string& name, const Json& entry) {
    if (entry.at("use_pickle").get<bool>()) {
      throw Refusal(format("{} is pickled: it is no plain tensor", shown(name)),
                    "export the model with plain tensors");
    }
    const auto record = text_at(entry, "path_name");
    if (record.find('/') != std::string::npos) throw Refusal("a record's name is a path: " + shown(record));
    const auto claim = claim_of(entry.at("tensor_meta"));
    // a record's tensors are told apart by what they show of it
    auto& same =
        seen_[format("{} {} {}", record, entry.at("tensor_meta").dump(), entry.at("is_param").dump())];
    if (same.defined()) return same;
    const checkpoint::Cursor input({}, archive_.path() + ": " + shown(name));
    same = checkpoint::rebuild_tensor(copy_of(record), claim, input).detach();
    if (entry.at("is_param").get<bool>() && entry.at("tensor_meta").at("requires_grad").get<bool>())
      same.requires_grad_();
    return same;
  }

  at::Tensor copy_of(const std::string& record) {
    auto& copy = copies_[record];
    if (copy.defined()) return copy;
    const auto bytes = archive_.zip().bytes(folder_ + record);
    copy = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
    std::copy(bytes.begin(), bytes.end(), copy.mutable_data_ptr<uint8_t>());
    return copy;
  }

  const Archive& archive_;
  std::string folder_;
  std::map<std::string, at::Tensor> copies_, seen_;
};

}  // namespace

checkpoint::TensorClaim claim_of(const Json& meta) {
  layout_of(meta.at("layout"));
  checkpoint::TensorClaim claim{.dtype = scalar_type_of(meta.at("dtype")),
                                .offset = fixed_size(meta.at("storage_offset"))};
  for (const auto& size : meta.at("sizes")) claim.sizes.push_back(fixed_size(size));
  for (const auto& stride : meta.at("strides")) claim.strides.push_back(fixed_size(stride));
  return claim;
}

Weights read_weights(const Archive& archive) {
  return Reader(archive, "data/weights/").read("model_weights_config.json");
}

Weights read_constants(const Archive& archive) {
  return Reader(archive, "data/constants/").read("model_constants_config.json");
}

}  // namespace lockstep::exported
