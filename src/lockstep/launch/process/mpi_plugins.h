#pragma once
// Which plug-ins Open MPI needs for the ranks of one node, by name: unnamed, each rank opens all that there
// are.

#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// Variables for the environment, before MPI_Init; none where ranks are on several nodes, another library is
/// in use, or somebody has chosen plug-ins already. `library` as MPI tells its version: "Open MPI v4.1.4".
std::vector<std::pair<std::string, std::string>> plugins_of_one_node(const Environment& environment,
                                                                     const std::string& library);

/// They stand in the environment while MPI comes up, and not in that of what this process starts later.
class NamedPlugins {
 public:
  explicit NamedPlugins(std::vector<std::pair<std::string, std::string>> plugins);
  ~NamedPlugins();
  NamedPlugins(const NamedPlugins&) = delete;
  NamedPlugins& operator=(const NamedPlugins&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> plugins_;
};

}  // namespace lockstep::launch
