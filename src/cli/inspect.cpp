#include "checkpoint/inspect.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/paths.h"
#include "cli/options.h"
#include "data/sha256.h"

namespace lockstep::cli {

namespace {

constexpr size_t kDigestDigits = 16;
constexpr size_t kLongestText = 60;

std::string digest(std::span<const uint8_t> bytes) {
  Sha256 sha;
  sha.add(bytes.data(), bytes.size());
  return sha.hex().substr(0, kDigestDigits);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const auto size : shape) text += format("{}{}", text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

/// One line of printable text, cut where it is long.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  if (text.size() > kLongestText) text = text.substr(0, kLongestText) + format("... ({} bytes)", text.size());
  return text;
}

void print_table(const std::string& path, const InspectedFile& file) {
  size_t name_width = 4, shape_width = 5, tensors = 0;
  uint64_t bytes = 0;
  for (const auto& entry : file.entries) {
    name_width = std::max(name_width, entry.name.size());
    shape_width = std::max(shape_width, shape_text(entry.shape).size());
    tensors += entry.kind == "tensor";
    bytes += entry.bytes;
  }
  std::string text =
      format("{}  ({}, {} bytes)\n{:<{}}  {:<8}  {:<{}}  {}\n", path, file.format, file.file_bytes, "name",
             name_width, "dtype", "shape", shape_width, "sha256, first 16 digits");
  for (const auto& entry : file.entries) {
    text += format("{:<{}}  ", one_line(entry.name), name_width);
    text += entry.kind == "tensor" ? format("{:<8}  {:<{}}  {}\n", entry.dtype, shape_text(entry.shape),
                                            shape_width, entry.digest)
                                   : format("{:<8}  {}\n", entry.kind, one_line(entry.value));
  }
  text += format("{} tensors, {} bytes; the file is whole\n", tensors, bytes);
  std::fputs(text.c_str(), stdout);
}

void print_json(const std::string& path, const InspectedFile& file) {
  auto entries = nlohmann::ordered_json::array();
  for (const auto& entry : file.entries) {
    if (entry.kind == "tensor") {
      entries.push_back({{"name", entry.name},
                         {"kind", entry.kind},
                         {"dtype", entry.dtype},
                         {"shape", entry.shape},
                         {"bytes", entry.bytes},
                         {"digest", entry.digest}});
    } else {
      entries.push_back({{"name", entry.name}, {"kind", entry.kind}, {"value", entry.value}});
    }
  }
  const nlohmann::ordered_json all = {
      {"file", path}, {"format", file.format}, {"file_bytes", file.file_bytes}, {"entries", entries}};
  // Names come from the file and may be no UTF-8.
  std::puts(all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

int run_inspect(const std::vector<std::string>& args) {
  std::string path;
  bool json = false;
  Options options("inspect", "the tensors of a checkpoint, their shapes, dtypes and digests",
                  {"lockstep inspect runs/mnist/checkpoints/step-00000470.pt",
                   "lockstep inspect model.safetensors --json"});
  options.positional("CHECKPOINT", path, "a .pt or safetensors file of lockstep's or Python's");
  options.flag("json", json, "print JSON");
  if (!options.parse(args)) return kDone;
  const auto file = inspect_file(find_path(path), digest);
  json ? print_json(path, file) : print_table(path, file);
  return kDone;
}

}  // namespace lockstep::cli
