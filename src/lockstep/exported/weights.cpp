#include "lockstep/exported/weights.h"

#include <torch/types.h>

#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/exported/field.h"

namespace lockstep::exported {
namespace {

class Reader {
 public:
  Reader(const Archive& archive, std::string folder) : archive_(archive), folder_(std::move(folder)) {}

  Weights read(const std::string& config) {
    if (!archive_.has(folder_ + config)) return {};
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
    const auto bytes = archive_.bytes(folder_ + record);
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
