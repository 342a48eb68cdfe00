// format(): fmt's syntax for each kind of argument, without fmt in sight.
#include "lockstep/base/format.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace lockstep {
namespace {

TEST(Format, NumbersAreWrittenAsTheirTypesAre) {
  EXPECT_EQ(format("{} {} {}", 1, int64_t{-2}, std::numeric_limits<uint64_t>::max()),
            "1 -2 18446744073709551615");
  EXPECT_EQ(format("{} {} {}", uint8_t{65}, 'A', true), "65 A true");
  EXPECT_EQ(format("{} {} {}", 0.1, 0.1f, 1e300), "0.1 0.1 1e+300");
  EXPECT_EQ(format("{:.1f}|{:08}|{:>5}|{:<3}|{:x}", 2.25, 42, -7, 'c', 255u), "2.2|00000042|   -7|c  |ff");
  EXPECT_EQ(format("{:.{}f} {:>{}}", 1.0, 3, "a", 4), "1.000    a");
  EXPECT_EQ(format("{}", std::numeric_limits<long long>::min()), "-9223372036854775808");
}

TEST(Format, TextsOfEveryKind) {
  const std::string text = "a string";
  const std::string_view view = text;
  const char* pointer = "a pointer";
  EXPECT_EQ(format("{}, {}, {}, {}, {:.3}", text, view.substr(2), pointer, "an array", text),
            "a string, string, a pointer, an array, a s");
  const char* none = nullptr;
  EXPECT_EQ(format("{}", none), "(null)");
  EXPECT_EQ(format("{}", std::string(3, '\0')).size(), 3U);
  EXPECT_EQ(format("{{{}}} {{}}", 1), "{1} {}");
  EXPECT_EQ(format("{1} {0} {1}", "a", "b"), "b a b");
  EXPECT_EQ(format("no field"), "no field");
}

}  // namespace
}  // namespace lockstep
