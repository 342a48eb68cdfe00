// https://github.com/huggingface/safetensors#format: u64 header length, JSON, data.

#include "lockstep/checkpoint/safetensors.h"

#include <torch/types.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/cursor.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/rebuild.h"
#include "lockstep/checkpoint/safetensors_header.h"
#include "lockstep/checkpoint/seal.h"

namespace lockstep {

namespace {

using OrderedJson = nlohmann::ordered_json;

class Reader {
 public:
  explicit Reader(const checkpoint::MappedFile& file) : input_(file.bytes(), file.path()) {
    if (checkpoint::check_safetensors_seal(file.bytes()) != checkpoint::Seal::broken) return;
    input_.fail("the file is damaged: it does not match its checksum",
                "copy the file again; if another program rewrote it, let it leave out the metadata key "
                "lockstep_crc32");
  }

  Tree read() {
    const auto entries = checkpoint::read_safetensors_header(input_);
    const auto data = input_.take(input_.left());
    check_cover(entries, data.size());
    auto tree = make_dict();
    for (const auto& entry : entries) {
      const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
      auto copy = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
      std::copy(bytes.begin(), bytes.end(), copy.mutable_data_ptr<uint8_t>());
      put(tree, entry.name, checkpoint::rebuild_tensor(copy, entry.claim, input_));
    }
    return tree;
  }

 private:
  /// Every byte belongs to exactly one tensor, and every tensor has as many as its shape says.
  void check_cover(std::vector<checkpoint::SafetensorsEntry> entries, uint64_t size) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const checkpoint::SafetensorsEntry& a, const checkpoint::SafetensorsEntry& b) {
                       return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                     });
    uint64_t covered = 0;
    for (const auto& entry : entries) {
      if (entry.begin != covered || entry.end < entry.begin || entry.end > size) {
        input_.fail(format("the data of tensor {} overlaps another's, leaves a gap or lies outside the file",
                           entry.name));
      }
      check_size(entry);
      covered = entry.end;
    }
    if (covered != size) input_.fail("the file has bytes that belong to no tensor");
  }

  void check_size(const checkpoint::SafetensorsEntry& entry) {
    const auto bytes = entry.end - entry.begin;
    uint64_t needed = c10::elementSize(entry.claim.dtype);
    for (const auto value : entry.claim.sizes) {
      if (value == 0) needed = 0;
    }
    for (const auto value : entry.claim.sizes) {
      if (needed > 0 && static_cast<uint64_t>(value) > bytes / needed)
        wrong(entry.name, "shape: it needs more bytes");
      needed *= static_cast<uint64_t>(value);
    }
    if (needed != bytes) wrong(entry.name, "shape: its data has another size");
  }

  [[noreturn]] void wrong(const std::string& name, const std::string& what) {
    input_.fail(format("the header is wrong: tensor {}, {}", name, what));
  }

  checkpoint::Cursor input_;
};

}  // namespace

bool is_safetensors(const std::string& path) {
  const checkpoint::MappedFile file(path);
  checkpoint::Cursor input(file.bytes(), path);
  if (input.left() < 9) return false;
  const auto length = input.number<uint64_t>();
  return length <= checkpoint::kLongestHeader && file.bytes()[8] == '{';
}

Tree read_safetensors(const std::string& path) {
  const checkpoint::MappedFile file(path);
  return file.whole(Reader(file).read());
}

void write_safetensors(const std::string& path, const Tree& tensors,
                       const std::map<std::string, std::string>& metadata) {
  auto header = OrderedJson::object();
  auto& texts = header["__metadata__"] = {
      {checkpoint::kSafetensorsSeal, checkpoint::kUnsealed}};  // first of all: there it is looked for
  for (const auto& [key, text] : metadata) {
    if (key != checkpoint::kSafetensorsSeal) texts[key] = text;
  }
  std::vector<at::Tensor> data;
  uint64_t end = 0;
  for (const auto& [name, value] : items(tensors)) {
    if (!value.isTensor())
      throw Error("safetensors holds tensors alone", as_string(name, "a tensor's name"),
                  "leave it out, or write a .pt file");
    data.push_back(value.toTensor().detach().to(at::kCPU).contiguous());
    const auto begin = std::exchange(end, end + data.back().nbytes());
    header[as_string(name, "a tensor's name")] = {
        {"dtype",
         checkpoint::safetensors_dtype(data.back().scalar_type(), as_string(name, "a tensor's name"))},
        {"shape", data.back().sizes().vec()},
        {"data_offsets", {begin, end}}};
  }
  auto text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  auto crc = checkpoint::crc32_of({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  for (const auto& tensor : data)
    crc = checkpoint::crc32_of({static_cast<const uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()}, crc);
  checkpoint::seal_safetensors(text, crc);
  base::write_whole(path, [&](const base::ByteSink& sink) {
    sink(text.data(), text.size());
    for (const auto& tensor : data) sink(tensor.const_data_ptr(), tensor.nbytes());
  });
}

}  // namespace lockstep
