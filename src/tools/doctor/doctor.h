#pragma once
// `lockstep doctor`: what is wrong with this node, this job and its network, and what to do about it.

#include <map>
#include <string>

#include "lockstep/launch/identify.h"

namespace lockstep::doctor {

struct DoctorSettings {
  std::string launcher = "auto";
  std::string device = "auto";
  std::string config = {};  // its data and run folders are checked; empty = the defaults
  std::string data = {};    // a folder in place of the config's
  std::string runs = {};
  bool json = false;
  std::map<std::string, std::string> versions = {};  // of the program: "libtorch" -> "2.11.0"
  launch::Environment environment = {};              // as the process found it
};

/// Collective where the ranks can meet. Prints on rank 0, or on one rank of each host where the ranks cannot
/// meet. Returns the exit status. If something hangs, prints what was found and ends the process.
int run(const DoctorSettings& settings);

}  // namespace lockstep::doctor
