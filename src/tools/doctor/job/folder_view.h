#pragma once
// A folder as one node sees it: looked at within a time, because a file server that is gone holds whoever
// asks it for ever.

#include <chrono>
#include <string>

namespace lockstep::doctor {

/// Of what the doctor puts into a folder for a moment.
constexpr const char* kProbeName = ".lockstep-doctor-";

struct FolderView {
  int rank = 0;
  int node = 0;
  std::string host;
  bool answered = true;    // false: nothing came back in time
  std::string there;       // the folder, or of one that is yet to be made the nearest above it that is there
  std::string unreadable;  // why it, or a file in it, cannot be read
  std::string unwritable;  // why a file cannot be made there
  std::string kind;        // of its file system: "nfs"
  long long free = -1;     // bytes for this user; -1 = not known
  long long entries = 0;   // that were looked at
  std::string digest;      // of the names and sizes of what is in it
};

/// What a folder is for.
enum class Purpose {
  to_read,   // it is there, with the data
  to_write,  // it may be yet to be made
};

/// `answered` is false where the file system did not tell in time: the thread that asks is left behind.
FolderView view_of(const std::string& path, Purpose purpose, std::chrono::milliseconds patience);

std::string pack(const FolderView& view);
FolderView unpack_view(const std::string& text);

/// "nfs", "lustre", or the number that statfs gives.
std::string file_system_name(long magic);

}  // namespace lockstep::doctor
