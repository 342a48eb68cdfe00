#include "tools/model_check/inspect.h"

#include <torch/types.h>

#include <filesystem>

#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/exported.h"
#include "tools/model_check/check.h"

namespace lockstep::model_check {
namespace {

checkpoint::InspectedEntry entry_of(const std::string& name, const at::Tensor& tensor,
                                    const checkpoint::Digest& digest) {
  const auto flat = tensor.detach().contiguous();
  return {.name = name,
          .kind = "tensor",
          .dtype = std::string(c10::getDtypeNames(flat.scalar_type()).first),
          .shape = flat.sizes().vec(),
          .bytes = flat.nbytes(),
          .digest = digest({static_cast<const uint8_t*>(flat.const_data_ptr()), flat.nbytes()})};
}

}  // namespace

bool is_exported_file(const std::string& path) {
  return path.ends_with(".pt2");
}

InspectedModel inspect_exported(const std::string& path, const checkpoint::Digest& digest) {
  const auto net = load_exported(path);
  InspectedModel model{.file = {.format = "pt2",
                                .file_bytes = std::filesystem::file_size(path),
                                .checksum = Checksum::each_record,
                                .entries = {}},
                       .words = facts_words(*net, path),
                       .facts = facts_json(*net, path)};
  for (const auto& [name, value] : items(module_state_dict(*net)))
    model.file.entries.push_back(entry_of(name.toStringRef(), value.toTensor(), digest));
  return model;
}

}  // namespace lockstep::model_check
