#include "lockstep/exported/weights.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/types.h>

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

constexpr const char* kWeights = "data/weights/";
constexpr const char* kWeightsConfig = "model_weights_config.json";

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

  /// Copies of the records, by their names, which the tensors are views of.
  const std::map<std::string, at::Tensor>& records() const { return records_; }

 private:
  at::Tensor read_one(const std::string& name, const Json& entry) {
    if (entry.at("use_pickle").get<bool>())
      throw Refusal(format("{} is pickled and not a plain tensor", shown(name)),
                    "export the model with plain tensors");
    const auto record = text_at(entry, "path_name");
    if (record.find('/') != std::string::npos) throw Refusal("a record's name is a path: " + shown(record));
    const auto& meta = entry.at("tensor_meta");
    const auto claim = claim_of(meta);
    const bool is_parameter = entry.at("is_param").get<bool>();
    // the same view of a record is the same tensor
    auto& same = seen_[format("{} {} {}", record, meta.dump(), is_parameter)];
    if (same.defined()) return same;
    auto& bytes = records_[folder_ + record];
    if (!bytes.defined()) bytes = checkpoint::copy_of(archive_.zip().bytes(folder_ + record));
    const checkpoint::Cursor input({}, archive_.path() + ": " + shown(name));
    same = checkpoint::rebuild_tensor(bytes, claim, input).detach();
    if (is_parameter && meta.at("requires_grad").get<bool>()) same.requires_grad_();
    return same;
  }

  const Archive& archive_;
  std::string folder_;
  std::map<std::string, at::Tensor> records_, seen_;
};

void fill(const Weights& weights, const Tree& state_dict, const std::string& given) {
  auto wanted = make_dict();
  for (const auto& [name, tensor] : weights) put(wanted, name, tensor);
  check_state_dict(wanted, state_dict, given);
  for (const auto& [name, tensor] : weights)
    tensor.detach().copy_(find(state_dict, name)->toTensor().detach());
}

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
  return Reader(archive, kWeights).read(kWeightsConfig);
}

Weights read_constants(const Archive& archive) {
  return Reader(archive, "data/constants/").read("model_constants_config.json");
}

void check_rewrite(const std::string& original, const std::string& path, const std::string& hint) {
  std::error_code none;
  if (std::filesystem::equivalent(original, path, none))
    throw InputError("this is the exported model itself, which is not overwritten", path, hint);
  base::check_output(path, hint);
  if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none))
    throw InputError("the output is not a regular file", path, hint);
  static_cast<void>(Archive(original));
}

void rewrite_weights(const std::string& original, const Tree& state_dict, const std::string& path,
                     const std::string& given) {
  check_rewrite(original, path, "name another file");
  const Archive archive(original);
  Reader reader(archive, kWeights);
  refusing(original,
           [&] { fill(reader.read(kWeightsConfig), state_dict, given.empty() ? original : given); });
  base::write_whole(path, [&](const base::ByteSink& sink) {
    // the writer makes a new serialization_id
    checkpoint::write_archive(sink, [&](caffe2::serialize::PyTorchStreamWriter& writer, auto&) {
      for (const auto& record : archive.zip().records()) {
        if (const auto filled = reader.records().find(record.name); filled != reader.records().end()) {
          writer.writeRecord(record.name, filled->second.const_data_ptr(), filled->second.nbytes());
        } else {
          const auto bytes = archive.zip().bytes(record.name);
          writer.writeRecord(record.name, bytes.data(), bytes.size());
        }
      }
    });
    archive.whole(true);
  });
}

}  // namespace lockstep::exported
