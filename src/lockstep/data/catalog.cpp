#include "lockstep/data/catalog.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace fs = std::filesystem;

const std::vector<KnownSet>& known_sets() {
  static const std::vector<KnownSet> sets{
      {"mnist",
       "70,000 handwritten digits, 28x28 grey",
       "CC BY-SA 3.0",
       {"https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/"},
       {{"train-images-idx3-ubyte.gz", 9912422,
         "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
        {"train-labels-idx1-ubyte.gz", 28881,
         "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
        {"t10k-images-idx3-ubyte.gz", 1648877,
         "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
        {"t10k-labels-idx1-ubyte.gz", 4542,
         "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}},
      {"pima",
       "768 women, 8 measurements, diabetes or not",
       "CC0 1.0",
       {"https://raw.githubusercontent.com/jbrownlee/Datasets/master/"},
       {{"pima-indians-diabetes.csv", 23278,
         "6bfe5d0f379d17a0e0819b996407e3c09bf80febd4287f2ed212190dfff154af"}}},
      {"mnli",
       "433,000 pairs of sentences: does one follow?",
       "OANC's; of the fiction public domain, CC BY 3.0, CC BY-SA 3.0",
       {"https://cims.nyu.edu/~sbowman/multinli/", "https://www.nyu.edu/projects/bowman/multinli/"},
       {{"multinli_1.0.zip", 226850426, "049f507b9e36b1fcb756cfd5aeb3b7a0cfcb84bf023793652987f7e7e0957822"}},
       {"multinli_1.0/multinli_1.0_train.jsonl", "multinli_1.0/multinli_1.0_dev_matched.jsonl",
        "multinli_1.0/multinli_1.0_dev_mismatched.jsonl"}},
  };
  return sets;
}

const KnownSet& known_set(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& set : known_sets()) {
    if (set.name == name) return set;
    names.push_back(set.name);
  }
  const auto near = base::nearest(name, names);
  throw InputError(format("there is no known data set '{}'", base::printable(name)), "",
                   near ? format("did you mean {}?", *near) : "known: " + base::join(names, ", "));
}

FileState check_file(const std::string& path, const KnownFile& known) {
  std::error_code none;
  if (!fs::exists(path, none)) return FileState::missing;
  const bool good = fs::is_regular_file(path, none) &&
                    fs::file_size(path, none) == static_cast<size_t>(known.bytes) &&
                    base::sha256_of_file(path) == known.sha256;
  return good ? FileState::good : FileState::damaged;
}

std::string set_folder(const KnownSet& set, const std::string& root) {
  return root.empty() ? base::find_path("data/" + set.name) : base::find_path(root);
}

}  // namespace lockstep::data
