#pragma once
// What is told of the data and run folders from what every node sees: there, readable, writable, the same,
// with room and with locks that hold.

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/job/folder_view.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

/// How a node fared with what rank 0 has put into the run folder.
struct FolderAccess {
  int rank = 0;
  std::string host;
  double seen_after = -1;   // seconds until it saw rank 0's file; -1 = never
  std::string unwritten;    // why it could not put its own beside it
  bool arrived = false;     // rank 0 has seen that
  bool lock_held = true;    // the run's lock, which rank 0 holds, is refused to this node
  std::string lock_error;   // flock's own word, where there are no locks
  bool lock_hangs = false;  // flock did not come back
};
std::string pack(const FolderAccess& shared);
FolderAccess unpack_shared(const std::string& text);

/// `views`: one a node, rank 0's first.
Findings judge_data_folder(const std::string& path, const std::vector<FolderView>& views);
Findings judge_run_folder(const std::string& path, const std::vector<FolderView>& views);
/// Of a lock that never answers on that host.
Finding hanging_lock(const std::string& host, const std::string& folder);
/// Of the nodes beside rank 0's.
Findings judge_sharing(const FolderView& first, const std::vector<FolderView>& views,
                       const std::vector<FolderAccess>& shared);

}  // namespace lockstep::doctor
