// A run's folder can be judged where nothing trains: the room pulls in no libtorch.
#include <gtest/gtest.h>

#include <fstream>

namespace {

TEST(TheModule, LinksNoLibtorch) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    EXPECT_FALSE(line.substr(line.rfind('/') + 1).starts_with("libtorch")) << line;
}

}  // namespace
