#include "lockstep/checkpoint/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <torch/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unordered_map>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/checkpoint_files.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/frame.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/tree.h"

namespace lockstep {

namespace {

using checkpoint::map_tensors;
using Uses = std::unordered_map<const c10::StorageImpl*, int>;

/// The whole storage as a flat tensor of the same dtype.
at::Tensor flat(const at::Tensor& tensor) {
  const auto length = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return tensor.as_strided({length}, {1}, 0);
}

}  // namespace

Tree snapshot(const Tree& tree) {
  Uses uses;
  map_tensors(tree, [&](const at::Tensor& tensor) -> Tree {
    checkpoint::require_dense(tensor);
    ++uses[tensor.storage().unsafeGetStorageImpl()];
    return tensor;
  });
  std::unordered_map<const c10::StorageImpl*, at::Tensor> copies;
  return map_tensors(tree, [&](const at::Tensor& shared) -> Tree {
    const auto tensor = shared.detach();
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    const bool is_part = tensor.storage_offset() != 0 || tensor.nbytes() != tensor.storage().nbytes();
    if (uses[storage] == 1 && is_part)
      return at::empty(tensor.sizes(), tensor.options().device(at::kCPU)).copy_(tensor);
    auto& copy = copies[storage];
    if (!copy.defined()) copy = flat(tensor).to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    if (copy.scalar_type() != tensor.scalar_type()) return tensor.to(at::kCPU).clone();
    return copy.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  });
}

CheckpointWriter::CheckpointWriter(std::function<CheckpointStore()> store,
                                   std::function<void(const std::string&)> saved)
    : store_(std::move(store)), saved_(std::move(saved)) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::submit(const Tree& tree, CheckpointStore::Name name) {
  wait();
  is_saving_ = true;
  thread_ = std::thread([this, name, copy = snapshot(tree)] {
    try {
      const auto path = store_().save(copy, name);
      if (name != CheckpointStore::Name::best) saved_(path);
    } catch (...) {
      failure_ = std::current_exception();
    }
    is_saving_ = false;
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

namespace fs = std::filesystem;

namespace {

int64_t step_of_tree(const Tree& tree) {
  return as_int(get(tree, "iter_no"), "iter_no");
}

int64_t step_of(const fs::path& path) {
  return *base::step_in_name(path.filename().string());
}

bool is_newer(const fs::path& left, const fs::path& right) {
  return step_of(left) > step_of(right);
}

/// A file that cannot be opened now may be whole, so a run must not continue from an earlier one instead.
void refuse_unreadable(const fs::path& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file) return;
  throw InputError(format("the checkpoint cannot be read: {}", std::strerror(errno)), path.string(),
                   "check the file system and permissions, or move this checkpoint away to skip it");
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, int64_t keep, std::function<void()> check)
    : folder_(std::move(folder)), keep_(keep), check_(check ? std::move(check) : [] {}) {}

std::string CheckpointStore::path_of(int64_t step) const {
  return (fs::path(folder_) / base::checkpoint_name(step)).string();
}

std::string CheckpointStore::best_path() const {
  return (fs::path(folder_) / "best.pt").string();
}

std::string CheckpointStore::save(const Tree& tree, Name name) const {
  const auto step = step_of_tree(tree);
  check_();
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure)
    throw Error("cannot make the folder for checkpoints: " + failure.message(), folder_,
                "free disk space, or set run.dir to a folder that can be written");
  const auto path = name == Name::best ? best_path() : path_of(step);
  base::write_whole(
      path, [&](const base::ByteSink& sink) { write_pt(sink, tree); }, check_);
  check_();
  if (name == Name::both) name_best(path);
  if (name != Name::best) prune(step);
  return path;
}

// A second name for the same file; a copy where the file system has none.
void CheckpointStore::name_best(const std::string& path) const {
  const auto temporary = (fs::path(folder_) / ".best.pt.partial").string();  // swept with the other leftovers
  std::error_code failure;
  fs::remove(temporary, failure);
  fs::create_hard_link(path, temporary, failure);
  if (failure) {
    failure.clear();
    fs::copy_file(path, temporary, failure);
  }
  if (!failure) fs::rename(temporary, best_path(), failure);
  if (failure)
    throw Error("cannot create checkpoints/best.pt: " + failure.message(), best_path(),
                "free disk space, or set checkpoint.best to false");
}

/// Deletes by age in steps. A file that claims a later step than the one just written stays: it is no older.
void CheckpointStore::prune(int64_t just_written) const {
  if (keep_ <= 0) return;
  std::error_code ignored;
  auto files = base::checkpoints_in(folder_, ignored);
  std::erase_if(files, [&](const auto& path) { return step_of(path) >= just_written; });
  std::sort(files.begin(), files.end(), is_newer);
  for (auto i = static_cast<size_t>(keep_ - 1); i < files.size(); ++i) fs::remove(files[i], ignored);
}

std::optional<FoundCheckpoint> CheckpointStore::latest() const {
  auto files = base::checkpoints_in(folder_);
  if (files.empty()) return std::nullopt;
  std::sort(files.begin(), files.end(), is_newer);
  for (const auto& path : files) {
    refuse_unreadable(path);
    try {
      auto tree = read_pt(path.string());
      return FoundCheckpoint{path.string(), step_of_tree(tree), std::move(tree)};
    } catch (const InputError& error) {
      log::warning(format("{} is skipped: {}", path.string(), error.what()));
    }
  }
  throw InputError(format("none of the {} checkpoints here can be read", files.size()), folder_,
                   "read the reasons above; restore one from a copy, or start a new run (without --resume)");
}

CheckpointStore checkpoints_of(const std::string& folder) {
  std::error_code failed;
  const auto inside = fs::path(folder) / "checkpoints";
  const bool plain = !fs::exists(inside, failed) && !failed;
  return CheckpointStore(plain ? folder : inside.string());
}

}  // namespace lockstep
