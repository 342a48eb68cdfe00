#pragma once
// A folder that only this user may enter. In it the ranks of one machine find a store in a file, and
// those of several machines rank 0's address. The kernel keeps other users out, so nothing here is secret.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/descriptor.h"
#include "lockstep/comm/meet/exchange.h"

namespace lockstep::comm {

/// Rank 0's file, which the other ranks find by its path while this object lives. It is complete before
/// anybody sees it. All functions here throw InputError where the folder belongs to another user or others
/// may enter it.
class PrivateFile {
 public:
  using Fill = std::function<bool(const base::Descriptor& file)>;
  /// `fill` returns false, with the reason in errno, where it cannot write. A locked file shows that its rank
  /// 0 lives; this throws Error where the rank 0 of another job holds the path.
  PrivateFile(const std::string& path, bool locked, const Fill& fill);
  ~PrivateFile();
  PrivateFile(const PrivateFile&) = delete;
  PrivateFile& operator=(const PrivateFile&) = delete;

 private:
  std::string path_;
  base::Descriptor file_;
};

/// Rank 0's store for the ranks of this machine. Those that have opened it keep it.
class LocalStore {
 public:
  explicit LocalStore(const std::string& path);
  const StorePtr& store() const { return store_; }

 private:
  StorePtr store_;
  PrivateFile file_;
};
/// The other ranks': null where no rank 0 holds one.
StorePtr find_local_store(const std::string& path);

/// Where rank 0 listens, and a random word for this start of the job.
struct MeetingPlace {
  std::string host = {};
  std::uint16_t port = 0;
  std::string word = {};
};
/// Rank 0 publishes it in a file without a lock, which a file system of several nodes may not have.
PrivateFile publish(const std::string& path, const MeetingPlace& place);
/// Nothing where rank 0 has not published it yet.
std::optional<MeetingPlace> find_place(const std::string& path);

}  // namespace lockstep::comm
