#include "trainer/run_folder/recorder.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/base/files/file.h"
#include "temp_folder.h"

namespace lockstep::run_folder {
namespace {

// RFC 3720, appendix B.4
TEST(Crc32c, HasTheValuesOfTheRfc) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST(EventFile, RecordsAreFramedAndChecked) {
  test::TempFolder scratch;
  EventFile(scratch.path(), 0).add(7, {{"loss", 0.5}});
  const auto file = *std::filesystem::directory_iterator(scratch.path());
  EXPECT_EQ(file.path().filename().string().rfind("events.out.tfevents.", 0), 0u);
  const auto bytes = base::read_text(file.path());
  int records = 0;
  for (size_t at = 0; at < bytes.size(); ++records) {
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, &bytes[at], sizeof length);
    std::memcpy(&crc, &bytes[at + 8], sizeof crc);
    EXPECT_EQ(crc, masked_crc32c(bytes.substr(at, 8)));
    std::memcpy(&crc, &bytes[at + 12 + length], sizeof crc);
    EXPECT_EQ(crc, masked_crc32c(bytes.substr(at + 12, length)));
    at += length + 16;
  }
  EXPECT_EQ(records, 2);
}

}  // namespace
}  // namespace lockstep::run_folder
