#include "lockstep/data/stage.h"

#include <fcntl.h>
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
#include "lockstep/base/write_all.h"

namespace lockstep::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kHint = "set data.stage to a node-local folder with room, or leave it empty";

/// A file under a temporary name, gone again unless it was given its own.
class Temporary {
 public:
  explicit Temporary(const fs::path& final_path) : final_(final_path) {
    file_ = base::make_partial(final_path, path_);
    if (!file_) fail("make");
  }
  ~Temporary() {
    if (!kept_) ::unlink(path_.c_str());
  }
  void write(const char* data, size_t size) {
    if (!base::write_all(file_.number(), {data, size})) fail("write");
  }
  void keep() {
    if (::fsync(file_.number()) != 0 || ::rename(path_.c_str(), final_.c_str()) != 0) fail("finish");
    kept_ = true;
  }
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw InputError(format("cannot {} the staged copy: {}", what, strerror(errno)), final_, kHint);
  }
  std::string path_;
  fs::path final_;
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

bool same_bytes(const fs::path& one, const fs::path& other) {
  std::error_code none;
  return fs::is_regular_file(other, none) && fs::file_size(one, none) == fs::file_size(other, none) &&
         base::sha256_of_file(one) == base::sha256_of_file(other);
}

}  // namespace

std::string stage_file(const std::string& path, const std::string& folder) {
  if (folder.empty()) return path;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw InputError(format("cannot make the staging folder: {}", failed.message()), folder, kHint);
  const fs::path copy = fs::path(folder) / fs::path(path).filename();
  if (fs::equivalent(path, copy, failed) || same_bytes(path, copy)) return copy;
  base::remove_dead_partials(copy);  // of a job that was killed here
  Temporary temporary(copy);
  const auto sum = copy_bytes(path, temporary);
  // What a bad disk would give back is found out here, not in the middle of training.
  if (base::sha256_of_file(temporary.path()) != sum) {
    throw InputError("the staged copy does not hold the file's bytes", copy, kHint);
  }
  temporary.keep();
  return copy;
}

}  // namespace lockstep::data
