#include "lockstep/tasks/kept_tokens.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::tasks {
namespace {

// The tensors: those of Tokens, and "about", whose bytes are texts: the key, the original's state, and the
// rest.
constexpr const char* kTensors[] = {"ids", "starts", "seconds", "targets"};
constexpr const char* kAbout = "about";

struct stat stat_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0)
    throw InputError(format("cannot read the file of samples: {}", strerror(errno)), path, "see task.file");
  return facts;
}

std::string text_of(const struct stat& facts) {
  return format("{} {}.{} {}.{} {}", facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec,
                facts.st_ctim.tv_sec, facts.st_ctim.tv_nsec, facts.st_ino);
}

at::Tensor bytes_of(const std::string& text) {
  auto bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

}  // namespace

OriginalFile::OriginalFile(const std::string& path) : path_(path), stat_(stat_of(path)) {
  facts_ = text_of(stat_);
}

const std::string& OriginalFile::digest() const {
  if (digest_.empty()) digest_ = base::sha256_of_file(path_);
  return digest_;
}

std::string OriginalFile::state() const {
  constexpr time_t kClockGrain = 3;  // seconds: a change within them may leave the times as they are
  const auto sum = digest();
  const auto now = stat_of(path_);
  if (text_of(now) != facts_) throw Error("the file was changed while it was read", path_, "");
  return base::pack_texts({::time(nullptr) - now.st_ctim.tv_sec > kClockGrain ? facts_ : "", sum});
}

bool OriginalFile::is(const std::string& state) const {
  const auto texts = base::unpack_texts(state);
  return texts.size() == 2 && (texts[0] == facts_ || texts[1] == digest());
}

bool OriginalFile::trusts(const struct stat& facts) const {
  const bool known = facts.st_uid == ::geteuid() || facts.st_uid == 0 || facts.st_uid == stat_.st_uid;
  return known && S_ISREG(facts.st_mode) && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

mode_t OriginalFile::permissions() const {
  return (stat_.st_mode & 0044) | 0600;
}

std::optional<Tokenised> find_kept_tokens(const std::string& path, const std::string& key,
                                          const OriginalFile& origin) try {
  if (!origin.trusts(stat_of(path))) return std::nullopt;
  const auto tree = read_safetensors(path);
  const auto about = as_tensor(get(tree, kAbout), kAbout);
  const auto texts = base::unpack_texts(
      {static_cast<const char*>(about.const_data_ptr()), static_cast<size_t>(about.nbytes())});
  if (texts.at(0) != key || !origin.is(texts.at(1))) return std::nullopt;
  SharedSet set{{}, texts.at(2)};
  for (const char* name : kTensors) set.tensors.push_back(as_tensor(get(tree, name), name));
  if (!is_sound(set)) return std::nullopt;
  return unpacked(set);
} catch (const std::exception&) {
  return std::nullopt;  // no file, or a damaged one
}

void keep_tokens(const std::string& path, const std::string& key, const OriginalFile& origin,
                 const Tokenised& made) {
  const auto set = packed(made);
  const auto tree = make_dict();
  for (size_t i = 0; i < std::size(kTensors); ++i) put(tree, kTensors[i], set.tensors[i]);
  put(tree, kAbout, bytes_of(base::pack_texts({key, origin.state(), set.text})));
  write_safetensors(path, tree, {}, origin.permissions());
  if (origin.trusts(stat_of(path))) return;
  ::unlink(path.c_str());
  throw Error("other users can write every file there", path, "");
}

}  // namespace lockstep::tasks
