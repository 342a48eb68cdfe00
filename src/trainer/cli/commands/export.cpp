// lockstep export: a checkpoint's model as what Python reads: a .pt2 of torch.export's, a folder of Hugging
// Face's.
#include "trainer/saved_model/export.h"

#include "lockstep/base/error.h"
#include "trainer/cli/options.h"
#include "trainer/cli/saved_options.h"

namespace lockstep::cli {
namespace {

struct ExportOptions {
  std::string folder, file;  // one of them
};

void check_export(const std::string& checkpoint, const ExportOptions& asked) {
  if (checkpoint.empty() || asked.folder.empty() == asked.file.empty()) {
    throw InputError(
        "export needs a checkpoint, and either a folder or a file to write", "--checkpoint, --output, --pt2",
        "lockstep export runs/NAME --pt2 FILE.pt2, of BERT --output FOLDER; see lockstep export --help");
  }
  if (asked.file.empty() || asked.file.ends_with(train::kPt2Ending)) return;
  throw InputError("the file's name does not end in .pt2", "--pt2 " + asked.file,
                   "lockstep export runs/NAME --pt2 FILE.pt2");
}

}  // namespace

int run_export(const std::vector<std::string>& args) {
  SavedOptions saved;
  ExportOptions asked;
  Options options(
      "export", "a checkpoint for Python: torch.export's .pt2, or a BERT's folder",
      {"lockstep export runs/mine --pt2 trained.pt2", "lockstep export runs/bert --output my-model",
       "lockstep export configs/bert.yaml --checkpoint runs/bert/checkpoints/best.pt --output my-model"});
  saved.add_to(options);
  options.add("pt2", asked.file, "FILE",
              "of the model exported: the file to write, model.path with the checkpoint's weights; with "
              "model.eval_path also FILE.eval.pt2");
  options.add("output", asked.folder, "FOLDER",
              "of the model bert: the folder to write: config.json, model.safetensors, vocab.txt");
  if (!options.parse(args)) return kDone;
  const auto checkpoint = saved.checkpoint();
  check_export(checkpoint, asked);
  auto command = saved.command("export");
  command.must_match.emplace_back("--output", asked.folder);
  command.must_match.emplace_back("--pt2", asked.file);
  return asked.file.empty() ? train::export_folder(command, checkpoint, asked.folder)
                            : train::export_pt2(command, checkpoint, asked.file);
}

}  // namespace lockstep::cli
