// NCCL's version, path, network and channels, from its library and its own log.
#include "tools/doctor/measure.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

std::string after(const std::string& line, const std::string& mark) {
  const auto at = line.find(mark);
  return at == std::string::npos ? "" : base::trimmed(line.substr(at + mark.size()));
}

int note_library(dl_phdr_info* info, size_t, void* names) {
  if (info->dlpi_name && *info->dlpi_name)
    static_cast<std::vector<std::string>*>(names)->emplace_back(info->dlpi_name);
  return 0;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace

void read_log(const std::string& text, Nccl& nccl) {
  std::istringstream lines(text);
  std::set<std::string> transports;
  for (std::string line; std::getline(lines, line);) {
    const auto network = after(line, "Using network ");
    if (!network.empty()) nccl.network = network;
    if (line.find("Channel ") != std::string::npos) transports.insert(after(line, " via "));
  }
  transports.erase("");
  nccl.transport = base::join({transports.begin(), transports.end()}, ", ");
}

void find_library(Nccl& nccl) {
  std::vector<std::string> names;
  ::dl_iterate_phdr(note_library, &names);
  for (const auto& name : names) {
    void* library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    void* found = ::dlsym(library, "ncclGetVersion");
    Dl_info where{};
    int code = 0;
    if (found && reinterpret_cast<int (*)(int*)>(found)(&code) == 0) {
      nccl.version = nccl_version_text(code);
      nccl.path = ::dladdr(found, &where) && where.dli_fname ? where.dli_fname : name;
    }
    ::dlclose(library);
    if (found) return;
  }
}

std::string nccl_version_text(int code) {
  const int thousand = code >= 10000 ? 10000 : 1000;
  return format("{}.{}.{}", code / thousand, code % thousand / 100, code % 100);
}

std::vector<std::string> fabric_here(const std::string& root) {
  auto found = names_in(root + "/infiniband");
  for (const auto& name : names_in(root + "/cxi")) found.push_back(name);
  for (const auto& name : names_in(root + "/net"))
    if (name.starts_with("hsn")) found.push_back(name);
  return found;
}

Finding nccl_finding(const Nccl& nccl, int nodes) {
  const auto known = [](const std::string& text, const char* otherwise) {
    return text.empty() ? otherwise : text;
  };
  const auto what = format("NCCL {} ({}), network {}, channels {}", known(nccl.version, "of unknown version"),
                           known(nccl.path, "path not known"), known(nccl.network, "not reported"),
                           known(nccl.transport, "not reported"));
  const bool sockets =
      nccl.network.starts_with("Socket") || nccl.transport.find("NET/Socket") != std::string::npos;
  if (nodes < 2 || !sockets || nccl.fabric.empty()) return ok(what);
  return warning(
      format("{}: it uses sockets, and this node has {}", what, base::join(nccl.fabric, ", ")),
      "give NCCL the fabric: load the site's plug-in (aws-ofi-nccl for Slingshot and EFA), check that "
      "libibverbs and /dev/infiniband are there (in a container, too), and unset NCCL_IB_DISABLE and "
      "NCCL_NET");
}

NcclLog::NcclLog() {
  std::error_code failed;
  const auto folder = fs::temp_directory_path(failed);
  try {
    file_.emplace(failed ? "/tmp" : folder.string(), "lockstep-nccl-", Probe::Kind::file);
  } catch (const Error&) {
    return;  // without it network and channels are not reported
  }
  const auto set = [&](const char* name, const char* value) {
    const char* former = std::getenv(name);
    former_.emplace_back(name, former ? std::optional<std::string>(former) : std::nullopt);
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  };
  set("NCCL_DEBUG", "INFO");
  set("NCCL_DEBUG_FILE", file_->path().c_str());
  set("NCCL_DEBUG_SUBSYS", nullptr);
}

NcclLog::~NcclLog() {
  for (const auto& [name, value] : former_) value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
}

std::string NcclLog::text() const {
  std::ifstream file(file_ ? file_->path() : "");
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

}  // namespace lockstep::doctor
