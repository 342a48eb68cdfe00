#pragma once
// Where rank 0 can be reached, told through a folder that is this user's alone.

#include <optional>
#include <string>

#include "lockstep/comm/meet/socket_exchange.h"

namespace lockstep::comm {

/// Rank 0's: the file is there, whole and readable for this user alone, while this object lives. Throws
/// InputError where the folder belongs to somebody else or others may write to it.
class MeetingFile {
 public:
  MeetingFile(const std::string& path, const MeetingPlace& place);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  std::string path_, word_;
};

/// The others': nothing where rank 0 has not written yet. Throws InputError as above.
std::optional<MeetingPlace> read_meeting_file(const std::string& path);

}  // namespace lockstep::comm
