#include "lockstep/launch/process/mpi_plugins.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

struct Plugin {
  const char* variable;
  const char* names;
};

// Messages through shared memory, or by TCP where /dev/shm is too small, and windows; a plug-in of the user's
// may make other windows. The rest is what a rank of mpirun takes of those that daemons and tools have, too.
constexpr std::array<Plugin, 9> kMpi = {{{"OMPI_MCA_pml", "ob1"},
                                         {"OMPI_MCA_btl", "self,vader,tcp"},
                                         {"OMPI_MCA_osc", "sm,rdma"},
                                         {"OMPI_MCA_coll", "self,basic,libnbc,inter,tuned"},
                                         {"OMPI_MCA_state", "app"},
                                         {"OMPI_MCA_errmgr", "default_app"},
                                         {"OMPI_MCA_reachable", "weighted"},
                                         {"OMPI_MCA_shmem", "mmap"},
                                         {"OMPI_MCA_schizo", "ompi,orte"}}};
constexpr const char* kMessages = "OMPI_MCA_mtl";

// Those of hwloc that MPI would open to look for displays, accelerators and network cards, or to read XML by
// another's library.
constexpr Plugin kNotOfHwloc = {
    "HWLOC_PLUGINS_BLACKLIST",
    "hwloc_gl.so,hwloc_opencl.so,hwloc_pci.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,hwloc_levelzero.so,"
    "hwloc_xml_libxml.so"};

// Somebody wants other ones; "^tcp" only leaves some out.
bool is_chosen(const Environment& environment, const char* variable) {
  return is_set(environment, variable) && !text_of(environment, variable).starts_with("^");
}

bool is_one_node(const Environment& environment) {
  const auto all = text_of(environment, "OMPI_COMM_WORLD_SIZE");
  return !all.empty() && all == text_of(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> plugins_of_one_node(const Environment& environment,
                                                                     const std::string& library) {
  const bool chosen =
      is_chosen(environment, kMessages) || std::ranges::any_of(kMpi, [&](const Plugin& plugin) {
        return is_chosen(environment, plugin.variable);
      });
  if (chosen || !is_one_node(environment) || !library.starts_with("Open MPI v4.")) return {};
  std::vector<std::pair<std::string, std::string>> named;
  const auto name = [&](const Plugin& plugin) {
    if (!is_set(environment, plugin.variable)) named.emplace_back(plugin.variable, plugin.names);
  };
  std::ranges::for_each(kMpi, name);
  name(kNotOfHwloc);
  return named;
}

NamedPlugins::NamedPlugins(std::vector<std::pair<std::string, std::string>> plugins)
    : plugins_(std::move(plugins)) {
  for (const auto& [name, value] : plugins_) ::setenv(name.c_str(), value.c_str(), 0);
}

NamedPlugins::~NamedPlugins() {
  for (const auto& [name, value] : plugins_) ::unsetenv(name.c_str());
}

}  // namespace lockstep::launch
