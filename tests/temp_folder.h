#pragma once
// A folder of one test's own, gone with it.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep::test {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  TempFolder(TempFolder&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  /// Returns the file's path.
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return *this / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::test
