#include "fuzz/parsers.h"

#include <ATen/ATen.h>

#include <fstream>
#include <span>

#include "lockstep/base/files/file.h"
#include "lockstep/checkpoint/inspect.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/data/csv.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_set.h"
#include "lockstep/data/npy.h"
#include "lockstep/data/pixels/image_file.h"
#include "lockstep/data/rows/text_rows.h"
#include "lockstep/exported/program.h"
#include "lockstep/models/bert.h"
#include "lockstep/tasks/tokenise.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/text/vocabulary.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/site.h"
#include "tools/report/run_list.h"
#include "tools/submit/submission.h"
#include "trainer/config/load.h"

namespace lockstep::fuzz {
namespace {

using Path = std::filesystem::path;
using Bytes = std::span<const uint8_t>;

Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void read_csv_file(const Path& folder, const std::string&) {
  for (const bool header : {true, false}) {
    Arena arena;
    try {
      read_csv((folder / "input.csv").string(), {.header = header, .label = header ? "label" : ""}, arena);
    } catch (const Error&) {  // and without a header it may be right
    }
  }
}

void read_arrays(const std::string& path) {
  Arena arena;
  read_csv(path, {.header = data::has_named_arrays(path)}, arena);
}

void read_idx(const Path& folder, const std::string&) {
  Arena arena;
  try {
    read_idx_labels((folder / "input.idx").string(), arena, 10);
  } catch (const Error&) {  // it may be images
  }
  read_idx_images((folder / "input.idx").string(), arena);
}

void read_rows(const Path& folder, const char* name) {
  const auto path = (folder / name).string();
  const auto rows = data::open_rows(path, data::layout_of(path, ','));
  rows->choose(rows->columns());
  std::vector<std::string_view> fields;
  while (rows->next(fields)) continue;
}

// As from another program, which writes no checksum.
void keep_tokens(const Path& folder) {
  const auto path = (folder / "input.tokens").string();
  tasks::TokenFile made;
  made.tokens = {at::arange(300, at::kInt), at::arange(0, 301, 100, at::kLong), at::zeros({3}, at::kInt),
                 at::zeros({3}, at::kLong)};
  made.names = {"good"};
  made.first_seen = {1};
  tasks::write_tokens(path, made, nlohmann::json::object(), 0600);
  auto text = base::read_text(path);
  std::ofstream(path) << text.replace(text.find("lockstep_crc32"), 14, "nobody's_crc32");
}

void read_tokens(const Path& folder, const std::string&) {
  Arena arena;
  (void)tasks::read_tokens((folder / "input.tokens").string(), arena, [](auto&, auto&) {}).tokens.ids.sum();
}

void read_tokenizer(const Path& folder, const std::string&) {
  std::ofstream(folder / "vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n";
  (void)text::read_folder(folder.string());
}

Parser file(std::string name, std::string file, void (*read)(const std::string& path)) {
  auto whole = [file, read](const Path& folder, const std::string&) { read((folder / file).string()); };
  return {std::move(name), std::move(file), std::move(whole)};
}

Parser text(std::string name, void (*read)(const std::string& text)) {
  return {std::move(name), "input", [read](const Path&, const std::string& input) { read(input); }};
}

}  // namespace

const std::vector<Parser>& parsers() {
  static const std::vector<Parser> all = {
      file("pt", "input.pt", [](const std::string& path) { open_checkpoint_file(path); }),
      file("safetensors", "input.safetensors", [](const std::string& path) { read_safetensors(path); }),
      file("inspect", "input.pt",
           [](const std::string& path) {
             checkpoint::inspect_file(path, [](Bytes) { return std::string(); });
           }),
      {"csv", "input.csv", read_csv_file},
      file("npy", "input.npy", read_arrays),
      file("npz", "input.npz", read_arrays),
      file("columns", "input.safetensors", read_arrays),
      file("images", "input.zip",
           [](const std::string& path) {
             Arena arena;
             const auto archive = data::open_image_archive(path, arena);
             const auto root = data::image_layout(path, &archive).train;
             const auto classes = data::class_folders(root, &archive);
             auto found = data::find_images(root, classes, &archive);
             data::remove_damaged(found, /*all_pixels=*/true);
           }),
      {"idx", "input.idx", read_idx},
      {"rows", "input.tsv", [](const Path& folder, const std::string&) { read_rows(folder, "input.tsv"); }},
      {"jsonl", "input.jsonl",
       [](const Path& folder, const std::string&) { read_rows(folder, "input.jsonl"); }},
      {"png", "input.png",
       [](const Path& folder, const std::string& input) {
         data::read_png((folder / "input.png").string(), 3);
         data::Pixels pixels;
         data::read_png(bytes_of(input), pixels);
       }},
      text("jpeg",
           [](const std::string& input) {
             data::Pixels pixels;
             data::read_jpeg(bytes_of(input), pixels);
           }),
      text("exported", [](const std::string& input) { exported::read_program(input, "model.pt2"); }),
      file("vocabulary", "vocab.txt", [](const std::string& path) { text::read_vocabulary(path); }),
      {"tokenizer", "tokenizer.json", read_tokenizer},
      {"bert-config", "config.json",
       [](const Path& folder, const std::string&) {
         read_bert_labels(folder.string());
         read_bert_config(folder.string());
       }},
      {"tokens", "input.tokens", read_tokens, keep_tokens},
      text("config", [](const std::string& input) { config::load_settings(input, "input.yaml"); }),
      text("past-config", [](const std::string& input) { config::read_past_config(input, "input.yaml"); }),
      text("site", [](const std::string& input) { cluster::parse_site(input, "input.yaml"); }),
      text("scheduler",
           [](const std::string& input) {
             cluster::parse_squeue(input, {"12"});
             cluster::parse_qstat(input, {"12"});
             cluster::read_sinfo(input);
             cluster::read_pbs(input, input, input);
           }),
      text("record", [](const std::string& input) { submit::parse_record(input); }),
      {"metrics", "metrics.jsonl",
       [](const Path& folder, const std::string&) {
         std::ofstream(folder / "config.yaml") << "run: {name: a}\n";
         report::read_run(folder, /*with_facts=*/true);
       }},
      {"status", "status.json",
       [](const Path& folder, const std::string& input) {
         std::ofstream(folder / "config.yaml") << "run: {name: a}\n";
         std::ofstream(folder / "report.json") << input;
         std::ofstream(folder / "trace.json") << input;
         report::read_run(folder, /*with_facts=*/true);
       }},
  };
  return all;
}

}  // namespace lockstep::fuzz
