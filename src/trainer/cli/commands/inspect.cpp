// lockstep inspect: the tensors of a checkpoint, with a digest each.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/inspect.h"
#include "tools/model_check/model_check.h"
#include "trainer/cli/options.h"
#include "trainer/saved_model/saved_model.h"

namespace lockstep::cli {

namespace {

constexpr size_t kDigestDigits = 16;
constexpr size_t kLongestText = 60;

std::string digest(std::span<const uint8_t> bytes) {
  base::Sha256 sha;
  sha.add(bytes.data(), bytes.size());
  return sha.hex().substr(0, kDigestDigits);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const auto size : shape) text += format("{}{}", text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

/// One line of printable text, cut where it is long.
std::string one_line(const std::string& text) {
  const std::string shown = base::printable(text, kLongestText);
  return text.size() > kLongestText ? format("{} ({} bytes)", shown, text.size()) : shown;
}

struct ChecksumWords {
  Checksum checksum;
  const char* word;
  const char* sentence;
};
constexpr ChecksumWords kChecksums[] = {
    {Checksum::whole_file, "file", "file is intact"},
    {Checksum::each_record, "records", "file is intact"},
    {Checksum::none, "none", "the file has no checksum: a flipped bit would go unnoticed"},
};

const ChecksumWords& words_of(Checksum checksum) {
  return *std::find_if(std::begin(kChecksums), std::end(kChecksums),
                       [checksum](const auto& row) { return row.checksum == checksum; });
}

void print_file_table(const std::string& path, const checkpoint::InspectedFile& file) {
  size_t name_width = 4, shape_width = 5, tensors = 0;
  uint64_t bytes = 0;
  for (const auto& entry : file.entries) {
    name_width = std::max(name_width, one_line(entry.name).size());
    shape_width = std::max(shape_width, shape_text(entry.shape).size());
    tensors += entry.kind == "tensor";
    bytes += entry.bytes;
  }
  std::string text =
      format("{}  ({}, {} bytes)\n{:<{}}  {:<8}  {:<{}}  {}\n", base::readable(path), file.format,
             file.file_bytes, "name", name_width, "dtype", "shape", shape_width, "sha256, first 16 digits");
  for (const auto& entry : file.entries) {
    text += format("{:<{}}  ", one_line(entry.name), name_width);
    text += entry.kind == "tensor" ? format("{:<8}  {:<{}}  {}\n", entry.dtype, shape_text(entry.shape),
                                            shape_width, entry.digest)
                                   : format("{:<8}  {}\n", entry.kind, one_line(entry.value));
  }
  text +=
      format("{}, {} bytes; {}\n", base::counted(tensors, "tensor"), bytes, words_of(file.checksum).sentence);
  std::fputs(text.c_str(), stdout);
}

nlohmann::ordered_json json_of(const checkpoint::InspectedEntry& entry) {
  if (entry.kind != "tensor") return {{"name", entry.name}, {"kind", entry.kind}, {"value", entry.value}};
  return {{"name", entry.name},   {"kind", entry.kind},   {"dtype", entry.dtype},
          {"shape", entry.shape}, {"bytes", entry.bytes}, {"digest", entry.digest}};
}

/// Entry by entry: as one JSON value a long list would take many times the file's memory. Names may not be
/// UTF-8.
void print_file_json(const std::string& path, const checkpoint::InspectedFile& file,
                     const nlohmann::ordered_json& model = {}) {
  std::printf("{\n  \"file\": %s,\n  \"format\": \"%s\",\n  \"file_bytes\": %llu,\n  \"checksum\": \"%s\",\n",
              base::as_line(nlohmann::ordered_json(path)).c_str(), file.format.c_str(),
              static_cast<unsigned long long>(file.file_bytes), words_of(file.checksum).word);
  if (!model.is_null()) std::printf("  \"model\": %s,\n", base::as_line(model).c_str());
  const char* before = "  \"entries\": [\n";
  for (const auto& entry : file.entries)
    std::printf("%s    %s", std::exchange(before, ",\n"), base::as_line(json_of(entry)).c_str());
  std::puts(file.entries.empty() ? "  \"entries\": []\n}" : "\n  ]\n}");
}

void print_model(const std::string& path, bool json) {
  const auto model = model_check::inspect_exported(path, digest);
  if (json) return print_file_json(path, model.file, model.facts);
  print_file_table(path, model.file);
  std::fputs(base::readable(model.words).c_str(), stdout);
}

}  // namespace

int run_inspect(const std::vector<std::string>& args) {
  std::string path;
  bool json = false;
  Options options("inspect", "lists the tensors of a checkpoint: shapes, dtypes, digests",
                  {"lockstep inspect runs/mnist", "lockstep inspect runs/mnist/checkpoints/step-00000470.pt",
                   "lockstep inspect model.safetensors --json"});
  options.positional("CHECKPOINT", path,
                     "a .pt or safetensors file from lockstep or Python, a .pt2 from torch.export, or a run "
                     "folder for its newest checkpoint");
  options.flag("json", json, "print JSON");
  if (!options.parse(args)) return kDone;
  path = base::find_path(path);
  if (path.ends_with(train::kPt2Ending)) return print_model(path, json), kDone;
  path = checkpoint::file_to_inspect(path);
  const auto file = checkpoint::inspect_file(path, digest);
  json ? print_file_json(path, file) : print_file_table(path, file);
  return kDone;
}

}  // namespace lockstep::cli
