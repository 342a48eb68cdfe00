// A run's folder can be judged where nothing trains: the room pulls in no libtorch.
#include <gtest/gtest.h>

#include <fstream>

namespace {

TEST(TheModule, LinksNoLibtorch) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    EXPECT_EQ(line.find("libtorch_cpu.so"), std::string::npos) << line;
}

}  // namespace
