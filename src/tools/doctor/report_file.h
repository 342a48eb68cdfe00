#pragma once
// Where a report goes when several processes were told one name: the first has it, the others one of their
// own.

#include <string>

#include "lockstep/base/descriptor.h"

namespace lockstep::doctor {

/// For its lifetime, which is the process's: `path` is ours, unless another that began with us has it.
class ReportFile {
 public:
  /// `rank`: of several that each speak for themselves; -1 = it speaks for all.
  ReportFile(const std::string& path, int rank);
  /// "report.json", "report.rank3.json", "report.n1-4711.json"
  const std::string& path() const { return path_; }

 private:
  bool claim(const std::string& path);

  std::string path_;
  base::Descriptor claimed_;
};

}  // namespace lockstep::doctor
