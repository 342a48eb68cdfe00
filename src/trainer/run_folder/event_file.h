#pragma once
// Scalars for TensorBoard: one events.out.tfevents file an attempt, written without protobuf.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/descriptor.h"

namespace lockstep::run_folder {

/// Appends to a new file in `folder`. An attempt that starts at a later step tells TensorBoard to forget what
/// an earlier file says from that step on.
class EventFile {
 public:
  EventFile(const std::filesystem::path& folder, int64_t first_step);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

 private:
  void write_event(int64_t step, std::string_view payload);
  std::string path_;
  base::Descriptor file_;
};

}  // namespace lockstep::run_folder
