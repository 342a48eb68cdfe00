#pragma once
// A folder that only this user can enter. The ranks of one machine find a store there, and the ranks of
// several machines find rank 0's address. The kernel keeps other users out, so nothing in it is a secret.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/descriptor.h"
#include "lockstep/comm/rendezvous/exchange.h"
#include "lockstep/launch/identify.h"

namespace lockstep::comm {

/// "{parent}/lockstep-1000/"
std::string private_folder(const std::string& parent);
/// A path on this machine, under LOCKSTEP_RENDEZVOUS_DIR, TMPDIR or /tmp.
std::string private_path(const launch::Environment& environment, const std::string& name);

/// Rank 0's file. The other ranks find it by its path while this object lives, and never see it incomplete.
/// All functions here throw InputError if the folder belongs to another user or other users can enter it.
class PrivateFile {
 public:
  using Fill = std::function<bool(const base::Descriptor& file)>;
  /// `fill` returns false, with the reason in errno, if it cannot write. The lock shows that rank 0 is alive.
  /// Throws Error if rank 0 of another job has locked the file at this path.
  PrivateFile(const std::string& path, bool locked, const Fill& fill);
  ~PrivateFile();
  PrivateFile(PrivateFile&&) = delete;

 private:
  std::string path_;
  base::Descriptor file_;
};

/// A store in a file, open for reading and writing. It is empty or has other processes' records.
StorePtr shared_store(base::Descriptor file);

/// Rank 0's store for the ranks of this machine. Ranks that have opened it keep it.
class LocalStore {
 public:
  explicit LocalStore(const std::string& path);
  const StorePtr& store() const { return store_; }

 private:
  StorePtr store_;
  PrivateFile file_;
};
/// Opens rank 0's store; null if there is none.
StorePtr find_local_store(const std::string& path);

/// Where rank 0 listens, and a random token that identifies this start of the job.
struct StoreLocation {
  std::string host = {};
  std::uint16_t port = 0;
  std::string token = {};
};
/// Rank 0 publishes it in a file. The file has no lock: not every shared file system has locks.
PrivateFile publish(const std::string& path, const StoreLocation& place);
/// Nothing if rank 0 has not published it yet.
std::optional<StoreLocation> find_store_location(const std::string& path);

}  // namespace lockstep::comm
