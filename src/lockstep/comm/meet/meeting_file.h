#pragma once
// A folder that only this user may enter: ranks on rank 0's machine connect to a Unix socket in it, and ranks
// on other machines read rank 0's address there.

#include <optional>
#include <string>

#include "lockstep/base/descriptor.h"
#include "lockstep/comm/meet/socket_exchange.h"

namespace lockstep::comm {

/// Rank 0's Unix socket, which listens while this object lives. Throws InputError where the folder belongs to
/// another user or others may enter it, Error where another rank 0 listens.
class MeetingSocket {
 public:
  explicit MeetingSocket(const std::string& path);
  ~MeetingSocket();
  MeetingSocket(const MeetingSocket&) = delete;
  MeetingSocket& operator=(const MeetingSocket&) = delete;

  int number() const { return socket_.number(); }

 private:
  std::string path_;
  base::Descriptor socket_;
};

/// The other ranks' connection to it; nothing where no rank 0 listens. Throws InputError as above.
std::optional<base::Descriptor> call_socket(const std::string& path);

/// Rank 0's: the file is there, whole and readable for this user alone, while this object lives. Throws
/// InputError where the folder belongs to another user or others may enter it.
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
