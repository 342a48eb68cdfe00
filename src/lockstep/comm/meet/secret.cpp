#include "lockstep/comm/meet/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/words.h"
#include "lockstep/base/write_all.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShortest = 16, kLongest = 1024;
constexpr const char* kSetIt = "set LOCKSTEP_SECRET to the same 16 letters or more on every rank";

fs::path folder_of_secret() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config && *config == '/') return fs::path(config) / "lockstep";
  const char* home = std::getenv("HOME");
  if (home && *home == '/') return fs::path(home) / ".config/lockstep";
  throw InputError("ranks on several nodes show that they belong together by a secret, and there is none",
                   "HOME is not set", kSetIt);
}

[[noreturn]] void refuse_secret(const fs::path& path, const std::string& what) {
  throw InputError("the secret by which ranks on several nodes know each other cannot be used: " + what,
                   path.string(), kSetIt);
}

// Empty where there is no file yet.
std::string read_secret(const fs::path& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return {};
  if (!file) refuse_secret(path, std::strerror(errno));
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0 || !S_ISREG(facts.st_mode)) refuse_secret(path, "it is no file");
  if (facts.st_uid != ::geteuid()) refuse_secret(path, "it belongs to another user");
  if ((facts.st_mode & 077) != 0) refuse_secret(path, "others may use it (chmod 600 ends that)");
  std::string text(kLongest + 1, '\0');
  const auto size = ::read(file.number(), text.data(), text.size());
  if (size < 0) refuse_secret(path, std::strerror(errno));
  if (static_cast<size_t>(size) < kShortest) refuse_secret(path, "it is too short; delete it");
  if (static_cast<size_t>(size) > kLongest) refuse_secret(path, "it is too long; delete it");
  text.resize(static_cast<size_t>(size));
  return base::trimmed(text);
}

// Whole under its name or not there: two ranks may make it at once, and the first is everybody's.
void make_secret(const fs::path& path) {
  std::error_code none;
  fs::create_directories(path.parent_path(), none);
  const auto draft = format("{}.{}", path.string(), fresh_word());
  base::Descriptor file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) refuse_secret(path, std::strerror(errno));
  const auto word = fresh_word() + "\n";
  const bool written = base::write_all(file.number(), word) && file.close();
  const int failed = written && (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST) ? 0 : errno;
  ::unlink(draft.c_str());
  if (failed) refuse_secret(path, std::strerror(failed));
}

std::array<char, 64> key_block(const std::string& secret) {
  std::array<char, 64> block{};
  base::Sha256 sum;
  sum.add(secret.data(), secret.size());
  const auto digest = sum.hex();
  std::copy(digest.begin(), digest.end(), block.begin());
  return block;
}

std::string hashed(std::array<char, 64> block, char with, const std::string& text) {
  for (char& c : block) c = static_cast<char>(c ^ with);
  base::Sha256 sum;
  sum.add(block.data(), block.size());
  sum.add(text.data(), text.size());
  return sum.hex();
}

}  // namespace

std::string job_secret() {
  if (const char* given = std::getenv("LOCKSTEP_SECRET"); given && *given) {
    if (std::strlen(given) < kShortest)
      throw InputError("LOCKSTEP_SECRET is too short to be a secret", "the environment", kSetIt);
    return given;
  }
  const auto path = folder_of_secret() / "secret";
  auto secret = read_secret(path);
  if (!secret.empty()) return secret;
  make_secret(path);
  secret = read_secret(path);
  if (secret.empty()) refuse_secret(path, "it goes whenever it is made");
  return secret;
}

// The construction of RFC 2104, with the key's digest in hex as the key.
std::string seal(const std::string& secret, const std::vector<std::string>& texts) {
  constexpr char kOuter = 0x5c, kInner = 0x36;
  const auto block = key_block(secret);
  return hashed(block, kOuter, hashed(block, kInner, base::pack_texts(texts)));
}

bool is_same_seal(const std::string& one, const std::string& other) {
  if (one.size() != other.size()) return false;
  unsigned differs = 0;
  for (size_t i = 0; i < one.size(); ++i)
    differs |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  return differs == 0;
}

std::string fresh_word() {
  std::random_device device;
  return format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

}  // namespace lockstep::comm
