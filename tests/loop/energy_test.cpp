#include "trainer/observe/energy.h"

#include <gtest/gtest.h>

#include "temp_folder.h"

namespace lockstep::train {
namespace {

class Energy : public ::testing::Test {
 protected:
  void set(const std::string& zone, const std::string& name, const std::string& counter) const {
    std::filesystem::create_directories(folder_.path() / zone);
    folder_.write(zone + "/name", name + "\n");
    folder_.write(zone + "/energy_uj", counter + "\n");
    folder_.write(zone + "/max_energy_range_uj", "10000000\n");
  }
  EnergyMeter meter() const { return {folder_.path().string(), {}}; }
  test::TempFolder folder_;
};

TEST_F(Energy, AddsPackagesAndMemoryAcrossWraps) {
  set("intel-rapl:0", "package-0", "9000000");
  set("intel-rapl:0:0", "core", "0");
  set("intel-rapl:0:1", "dram", "1000000");
  set("intel-rapl:1", "psys", "0");
  set("intel-rapl-mmio:0", "package-0", "0");
  auto energy = meter();
  EXPECT_EQ(energy.read().processors, 0.0);
  set("intel-rapl:0", "package-0", "2000000");  // 3 J later, as it starts again at 10 J
  set("intel-rapl:0:0", "core", "2000000");
  set("intel-rapl:1", "psys", "9000000");
  EXPECT_EQ(energy.read().processors, 3.0);
  set("intel-rapl:0:1", "dram", "1500000");
  EXPECT_EQ(energy.read().processors, 3.5);
  EXPECT_FALSE(energy.read().gpu);
}

TEST_F(Energy, IsNotMeasuredWithoutACounterThatCanBeRead) {
  EXPECT_FALSE(EnergyMeter(folder_ / "none", {}).read().processors);
  EXPECT_FALSE(EnergyMeter("", {}).read().processors);
  EXPECT_FALSE(meter().read().processors);
  set("intel-rapl:0", "package-0", "1");
  std::filesystem::create_directories(folder_.path() /
                                      "intel-rapl:1/energy_uj");  // cannot be read, even by root
  folder_.write("intel-rapl:1/name", "package-1\n");
  EXPECT_FALSE(meter().read().processors);
}

}  // namespace
}  // namespace lockstep::train
