#include "lockstep/cluster/log_tail.h"

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::cluster {
namespace {

constexpr size_t kMostAtOnce = 1 << 20;
constexpr size_t kLongestLine = 1 << 16;

}  // namespace

void LogTail::pass_on(const std::function<void(const std::string& line)>& to, bool at_end) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path_, none)) return;
  try {
    const base::RegularFile file(path_.string(), "the job's log");
    if (file.size() < offset_) offset_ = 0;  // begun anew by a site that does not append
    std::array<char, 1 << 14> part;
    size_t taken = 0;
    while (const size_t n = file.read_at(offset_, part.data(), part.size())) {
      piece_.append(part.data(), n);
      offset_ += n;
      if ((taken += n) >= kMostAtOnce && !at_end) break;
    }
  } catch (const Error&) {
    return;
  }
  size_t from = 0;
  for (size_t end = 0; (end = piece_.find('\n', from)) != std::string::npos; from = end + 1)
    to(piece_.substr(from, end - from));
  piece_.erase(0, from);
  if (piece_.empty() || (!at_end && piece_.size() < kLongestLine)) return;
  to(piece_);
  piece_.clear();
}

}  // namespace lockstep::cluster
