#include "lockstep/data/stage.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"

namespace lockstep::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kHint = "set data.stage to a node-local folder with room, or leave it empty";

/// A file under a temporary name, gone again unless it was given its own.
class Temporary {
 public:
  explicit Temporary(const fs::path& beside) : file_(base::make_partial(beside, path_)) {
    if (!file_) fail("make");
  }
  ~Temporary() {
    if (!kept_) ::unlink(path_.c_str());
  }
  void write(const char* data, size_t size) {
    if (!base::write_all(file_.number(), {data, size})) fail("write");
  }
  void keep(const fs::path& name) {
    if (::fsync(file_.number()) != 0 || ::rename(path_.c_str(), name.c_str()) != 0) fail("finish");
    kept_ = true;
  }
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw InputError(format("cannot {} the staged copy: {}", what, strerror(errno)), path_, kHint);
  }
  std::string path_;
  base::Descriptor file_;
  bool kept_ = false;
};

std::string copy_bytes(const std::string& from, Temporary& to) {
  base::RegularFile file(from, "the data file");
  std::vector<char> chunk(1 << 20);
  base::Sha256 sum;
  while (const size_t got = file.read(chunk.data(), chunk.size())) {
    sum.add(chunk.data(), got);
    to.write(chunk.data(), got);
  }
  return sum.hex();
}

// The user is part of it, so that two users with one folder get a copy each.
std::string digest_of_facts(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0)
    throw InputError(format("the data file cannot be read: {}", strerror(errno)), path,
                     "check the path and its permissions");
  const auto text = format("{} {} {} {}.{}", fs::absolute(path).lexically_normal().string(), ::geteuid(),
                           facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
  base::Sha256 sum;
  sum.add(text.data(), text.size());
  return sum.hex();
}

// Of the file, which is not read for it, then of the copy's content: FILE-CONTENT-NAME.
constexpr size_t kDigits = 16;

std::string copy_name(const std::string& file, const std::string& content, const fs::path& path) {
  return format("{}-{}-{}", file.substr(0, kDigits), content.substr(0, kDigits), path.filename().string());
}

std::string find_copy(const fs::path& folder, const std::string& file, const fs::path& path) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(file.substr(0, kDigits) + "-") || !is_own_file(entry.path())) continue;
    if (name == copy_name(file, base::sha256_of_file(entry.path()), path)) return entry.path();
  }
  return "";
}

void make_folder(const std::string& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw InputError(format("cannot make the staging folder: {}", failed.message()), folder, kHint);
  struct stat facts {};
  if (::stat(folder.c_str(), &facts) == 0 && (facts.st_mode & S_IWOTH) && !(facts.st_mode & S_ISVTX))
    throw InputError("every user can replace the files in the staging folder", folder,
                     "set data.stage to a folder of your own");
}

}  // namespace

bool is_own_file(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid();
}

std::string stage_file(const std::string& path, const std::string& folder) {
  if (folder.empty()) return path;
  make_folder(folder);
  std::error_code none;
  if (fs::equivalent(fs::absolute(path).parent_path(), folder, none)) return path;
  const auto facts = digest_of_facts(path);
  if (auto copy = find_copy(folder, facts, path); !copy.empty()) return copy;
  const auto beside = fs::path(folder) / fs::path(path).filename();
  base::remove_dead_partials(beside);  // of a job that was killed here
  Temporary temporary(beside);
  const auto content = copy_bytes(path, temporary);
  // What a bad disk would give back is found out here, not in the middle of training.
  if (base::sha256_of_file(temporary.path()) != content)
    throw InputError("the staged copy does not hold the file's bytes", temporary.path(), kHint);
  if (digest_of_facts(path) != facts)
    throw InputError("the data file changed while it was copied", path, "start again once it is complete");
  const auto copy = fs::path(folder) / copy_name(facts, content, path);
  temporary.keep(copy);
  return copy;
}

}  // namespace lockstep::data
