#pragma once
// What `lockstep doctor` was asked to do.

#include <chrono>
#include <map>
#include <string>

#include "lockstep/launch/identify.h"

namespace lockstep::doctor {

constexpr const char* kReportHint = "give --report a file that can be written";

struct DoctorSettings {
  std::string launcher = "auto";
  std::string device = "auto";
  std::string config = {};  // whose folders are looked at; empty = the defaults'
  std::string data = {};    // a folder in place of the config's
  std::string runs = {};
  bool json = false;
  std::string report = {};                           // a file to send to others; empty = none
  std::map<std::string, std::string> versions = {};  // of the program: "libtorch" -> "2.11.0"
  launch::Environment environment = {};              // as it was found
  std::chrono::milliseconds limit{55'000};           // for all of it
};

}  // namespace lockstep::doctor
