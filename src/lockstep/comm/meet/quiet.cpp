#include "lockstep/comm/meet/quiet.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace lockstep::comm {
namespace {

bool may_speak() {
  const char* trace = std::getenv("LOCKSTEP_TRACE");
  return (trace && std::string(trace) == "1") || std::getenv("TORCH_CPP_LOG_LEVEL");
}

}  // namespace

QuietJoin::QuietJoin() : before_(FLAGS_caffe2_log_level) {
  if (!may_speak()) FLAGS_caffe2_log_level = std::max(before_, static_cast<int>(c10::GLOG_FATAL));
}

QuietJoin::~QuietJoin() {
  FLAGS_caffe2_log_level = before_;
}

}  // namespace lockstep::comm
