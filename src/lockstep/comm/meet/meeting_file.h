#pragma once
// A folder that only this user may enter. In it ranks of one machine find a store in shared memory, and ranks
// of several machines rank 0's address.

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/comm/meet/exchange.h"

namespace lockstep::comm {

/// Rank 0's store, which other ranks of this machine find by its path while this object lives; who has opened
/// it keeps it. All functions here throw InputError where the folder belongs to another user or others may
/// enter it, and this one Error where the rank 0 of another job holds the path.
class LocalMeeting {
 public:
  explicit LocalMeeting(const std::string& path);
  ~LocalMeeting();
  LocalMeeting(const LocalMeeting&) = delete;
  LocalMeeting& operator=(const LocalMeeting&) = delete;

  const StorePtr& store() const { return store_; }

 private:
  std::string path_;
  StorePtr store_;
};

/// The other ranks': null where no rank 0 holds one.
StorePtr find_local_store(const std::string& path);

/// Where rank 0 listens, and a random word for this start of the job.
struct MeetingPlace {
  std::string host = {};
  std::uint16_t port = 0;
  std::string word = {};
};

/// Rank 0's: the file is there, readable for this user alone, while this object lives.
class MeetingFile {
 public:
  MeetingFile(const std::string& path, const MeetingPlace& place);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  std::string path_, word_;
};

/// The others': nothing where rank 0 has not written yet.
std::optional<MeetingPlace> read_meeting_file(const std::string& path);

}  // namespace lockstep::comm
