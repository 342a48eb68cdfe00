#include "lockstep/data/catalog.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

namespace fs = std::filesystem;
namespace {

constexpr int kNoResume = 33;   // curl's exit code
constexpr int kNotThere = 127;  // the shell's
constexpr int kTooLong = -2;
constexpr const char* kOtherRoot = "free disk space, or pass --root with a folder that can be written";
constexpr int kUnreachable[] = {5, 6, 7, 28};
// curl's exit codes (man curl, EXIT CODES)
const std::map<int, const char*> kReasons{{5, "the proxy's name does not resolve"},
                                          {6, "its name does not resolve"},
                                          {7, "no connection"},
                                          {18, "the transfer was interrupted"},
                                          {22, "it does not have the file"},
                                          {23, "writing failed: is the disk full?"},
                                          {28, "it took too long"},
                                          {kTooLong, "its file is longer than expected"},
                                          {56, "the transfer was interrupted"}};

// A mirror may send without end, or two bytes a second. The shell's limit is in blocks of 512 or 1,024 bytes.
int run_curl(const std::string& url, const std::string& part, int64_t bytes, const FetchOptions& options) {
  constexpr int64_t kSecondsToAnswer = 600, kSlowestBytesPerSecond = 10'000;
  const auto words = format(
      "--fail --location --proto =http,https --continue-at - --connect-timeout 20 --speed-limit 1000 "
      "--speed-time {} --max-time {} {}",
      options.stall_seconds, kSecondsToAnswer + bytes / kSlowestBytesPerSecond,
      options.progress ? "--progress-bar" : "--silent");
  const base::Program curl{
      .argv = {"sh", "-c",
               "ulimit -c 0 && ulimit -f \"$1\" && exec curl -q " + words + " --output \"$2\" -- \"$3\"",
               "sh", std::to_string(bytes / 512 + 1), part, url}};
  pid_t child;
  if (const int failed = base::start_program(curl, child))
    throw Error(format("cannot run a shell: {}", strerror(failed)), "", "copy the files by hand");
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) return kTooLong;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotThere)
    throw Error("curl is not installed", "", "install curl, or copy the files by hand");
  if (WIFSIGNALED(status))
    throw Error(format("curl was ended by signal {}", WTERMSIG(status)), url,
                "run the same command again, which resumes the download");
  return WEXITSTATUS(status);
}

struct Answer {
  int code = 0;
  std::string reason;  // empty = the file is there and whole
};

Answer try_mirror(const std::string& url, const std::string& part, const KnownFile& file,
                  const FetchOptions& options) {
  std::error_code none;
  // A part that is too long, or as long as the file and wrong, cannot be resumed.
  if (fs::file_size(part, none) >= static_cast<size_t>(file.bytes) && !none) fs::remove(part, none);
  int code = run_curl(url, part, file.bytes, options);
  if (code == kNoResume) {
    fs::remove(part, none);
    code = run_curl(url, part, file.bytes, options);
  }
  if (code == 0 && check_file(part, file) == FileState::good) return {};
  if (code == 0 || code == kTooLong) fs::remove(part, none);
  if (code == 0) return {code, "its file has the wrong SHA-256 digest"};
  const auto reason = kReasons.find(code);
  return {code, reason == kReasons.end() ? format("curl's exit status {}", code) : reason->second};
}

void keep(const std::string& part, const std::string& path) {
  const base::Descriptor file(::open(part.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fsync(file.number()) != 0 || ::rename(part.c_str(), path.c_str()) != 0)
    throw Error(format("cannot save the download: {}", strerror(errno)), path, kOtherRoot);
}

// A regular file of this user, not a link.
bool is_own_file(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid();
}

}  // namespace

void fetch_file(const KnownSet& set, const KnownFile& file, const std::string& folder,
                const FetchOptions& options) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw InputError(format("cannot create the folder: {}", failed.message()), folder, kOtherRoot);
  const auto path = (fs::path(folder) / file.name).string(), part = path + ".part";
  if (fs::exists(fs::symlink_status(part, failed)) && !is_own_file(part))
    throw InputError("the partial download is another user's file, or a link", part, "remove it");
  if (check_file(part, file) == FileState::good) return keep(part, path);
  std::vector<std::string> answers;
  bool unreachable = true;
  for (auto mirror : options.mirrors.empty() ? set.mirrors : options.mirrors) {
    if (!mirror.ends_with('/')) mirror += '/';
    const auto answer = try_mirror(mirror + file.name, part, file, options);
    if (answer.reason.empty()) return keep(part, path);
    answers.push_back(mirror + ": " + answer.reason);
    unreachable =
        unreachable && std::count(std::begin(kUnreachable), std::end(kUnreachable), answer.code) > 0;
  }
  throw Error(format("cannot fetch {}{}", file.name,
                     unreachable ? ": no mirror answered, so this node may have no internet access" : ""),
              base::join(answers, "; "),
              format("run this on a login node, set https_proxy, or copy the file into {}", folder));
}

std::string stage_file(const std::string& path, const std::string& folder) {
  if (folder.empty()) return path;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed)
    throw InputError(format("cannot create the staging folder: {}", failed.message()), folder,
                     "set data.stage to a node-local folder with room, or leave it empty");
  struct stat facts {};
  if (::stat(folder.c_str(), &facts) == 0 && (facts.st_mode & S_IWOTH) && !(facts.st_mode & S_ISVTX))
    throw InputError("every user can replace the files in the staging folder", folder,
                     "set data.stage to a folder of your own");
  if (fs::equivalent(fs::absolute(path).parent_path(), folder, failed)) return path;
  // with the user, so that two users of one folder have a copy each
  const auto digest_of_facts = [&] {
    if (::stat(path.c_str(), &facts) != 0)
      throw InputError(format("cannot read the data file: {}", strerror(errno)), path,
                       "check the path and its permissions");
    const auto text = format("{} {} {} {}.{}", fs::absolute(path).lexically_normal().string(), ::geteuid(),
                             facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
    base::Sha256 sum;
    sum.add(text.data(), text.size());
    return sum.hex();
  };
  const auto digest = digest_of_facts();
  const auto name = format("{}-{}", digest.substr(0, 16), fs::path(path).filename().string());
  const auto copy = (fs::path(folder) / name).string();
  if (is_own_file(copy) && fs::file_size(copy, failed) == static_cast<size_t>(facts.st_size)) return copy;
  base::remove_stale_partials(copy);  // from a job that was killed here
  try {
    base::write_whole(
        copy,
        [&](const base::ByteSink& sink) {
          base::RegularFile file(path, "the data file");
          std::vector<char> chunk(1 << 20);
          while (const size_t got = file.read(chunk.data(), chunk.size())) sink(chunk.data(), got);
        },
        [&] {
          if (digest_of_facts() == digest) return;
          throw InputError("the data file changed while it was copied", path,
                           "start again once it is complete");
        },
        0600);
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {
    throw InputError(error.what(), copy,
                     "set data.stage to a node-local folder with room, or leave it empty");
  }
  return copy;
}

std::string find_data_file(const std::string& root, const std::vector<std::string>& names,
                           const std::string& set) {
  const fs::path folder = base::find_path(root);
  std::error_code none;
  for (const char* inside : {"", "MNIST/raw", "raw", "multinli_1.0"}) {  // torchvision's, and the archive's
    for (const auto& name : names) {
      const auto path = folder / inside / name;
      if (fs::exists(path, none)) return path;
    }
  }
  const auto hint = format("set data.root, or run lockstep data fetch {} --root {}", set, root);
  if (!fs::is_directory(folder, none)) throw InputError("the data folder does not exist", folder, hint);
  throw InputError(format("the data folder has no {}", base::join(names, " or ")), folder, hint);
}

const std::vector<KnownSet>& known_sets() {
  static const std::vector<KnownSet> sets{
      {"mnist",
       "70,000 handwritten digits, 28x28 gray",
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
       "433,000 sentence pairs, 3 classes",
       "OANC license; the fiction is public domain, CC BY 3.0 or CC BY-SA 3.0",
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
  throw InputError(format("unknown data set '{}'", base::printable(name)), "lockstep data",
                   base::did_you_mean(name, names, "choose one of " + base::join(names, ", ")));
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
