#pragma once
// What NCCL says of itself, and whether it takes the network that the node has.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/doctor/job/probes.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

struct Nccl {
  std::string version;    // "2.27.3"; empty where no library is loaded
  std::string path;       // of the library it is in
  std::string network;    // "Socket", "IB", "AWS Libfabric": what it says it uses
  std::string transport;  // "P2P/CUMEM", "NET/Socket/0": what its channels go by, several with commas
  std::vector<std::string> fabric;  // what this node has: "mlx5_0", "hsn0"
};

/// NCCL's own log (NCCL_DEBUG=INFO), as far as it tells.
void read_log(const std::string& text, Nccl& nccl);

/// Version and path of the NCCL that is loaded, wherever it is.
void find_library(Nccl& nccl);

/// 22703 -> "2.27.3"; before 2.9 they are numbered 2708 -> "2.7.8".
std::string nccl_version_text(int code);

/// The devices of InfiniBand and the like, and Slingshot's interfaces, under /sys/class.
std::vector<std::string> fabric_here(const std::string& root = "/sys/class");

Findings judge_nccl(const Nccl& nccl, int nodes);

/// For as long as it lives NCCL writes the log that the check reads to a file of ours, whatever people
/// set; what they set is there again after it.
class NcclLog {
 public:
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  std::string text() const;

 private:
  void set(const char* name, const char* value);  // nullptr = unset

  std::optional<Probe> file_;
  std::vector<std::pair<const char*, std::optional<std::string>>> former_;
};

}  // namespace lockstep::doctor
