#include "lockstep/base/paths.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "temp_folder.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class Paths : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "work");
    fs::create_directories(folder_ / "home/data");
    before_ = fs::current_path();
    fs::current_path(folder_ / "work");
    setenv("LOCKSTEP_HOME", (folder_ / "home").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("LOCKSTEP_HOME");
    fs::current_path(before_);
  }
  test::TempFolder temp_;
  fs::path folder_ = temp_.path(), before_;
};

TEST_F(Paths, TheWorkingDirectoryComesFirst) {
  std::ofstream("here.yaml") << "x";
  std::ofstream(folder_ / "home/here.yaml") << "y";
  EXPECT_EQ(base::find_path("here.yaml"), "here.yaml");
}

TEST_F(Paths, HomeComesSecond) {
  EXPECT_EQ(base::find_path("data"), (folder_ / "home/data").string());
}

TEST_F(Paths, WhatIsNowhereStaysAsItWasWritten) {
  EXPECT_EQ(base::find_path("nowhere.yaml"), "nowhere.yaml");
  EXPECT_EQ(base::find_path("/nowhere/data"), "/nowhere/data");
  EXPECT_EQ(base::find_path(""), "");
}

TEST_F(Paths, WithoutTheVariableTheBuildFindsItsSourceTree) {
  unsetenv("LOCKSTEP_HOME");
  EXPECT_TRUE(fs::exists(fs::path(base::home_folder()) / "data/pima")) << base::home_folder();
}

TEST_F(Paths, AnEmptyVariableIsNoVariable) {
  setenv("LOCKSTEP_HOME", "", 1);
  EXPECT_TRUE(fs::exists(fs::path(base::home_folder()) / "data/pima")) << base::home_folder();
}

}  // namespace
}  // namespace lockstep
