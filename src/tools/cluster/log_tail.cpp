#include "tools/cluster/log_tail.h"

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"

namespace lockstep::cluster {
namespace {

constexpr size_t kMostAtOnce = 1 << 20;
constexpr size_t kLongestLine = 1 << 16;

}  // namespace

bool LogTail::read_some() try {
  const base::RegularFile file(path_.string(), "the job's log");
  if (file.size() < offset_) {  // begun again by a site that does not append
    offset_ = 0;
    piece_.clear();
  }
  std::array<char, 1 << 14> part;
  for (size_t taken = 0; taken < kMostAtOnce;) {
    const size_t n = file.read_at(offset_, part.data(), part.size());
    if (n == 0) return false;
    piece_.append(part.data(), n);
    offset_ += n;
    taken += n;
  }
  return true;
} catch (const Error&) {  // gone, or not to be read now
  return false;
}

void LogTail::hand_over(const Taker& to) {
  size_t from = 0;
  for (size_t end = 0; (end = piece_.find('\n', from)) != std::string::npos; from = end + 1)
    to(piece_.substr(from, end - from));
  piece_.erase(0, from);
  if (piece_.size() < kLongestLine) return;
  to(piece_);
  piece_.clear();
}

void LogTail::pass_on(const Taker& to, bool at_end) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path_, none)) return;
  for (bool more = true; more;) {
    more = read_some() && at_end;
    hand_over(to);
  }
  if (piece_.empty() || !at_end) return;
  to(piece_);
  piece_.clear();
}

}  // namespace lockstep::cluster
