// Several programs as one source.
#include "course/workshop/together.h"

#include <gtest/gtest.h>

namespace lockstep::workshop {
namespace {

TEST(Together, EachProgramHasANamespaceBehindTheIncludesOfAll) {
  const auto text = together(
      {"#include <map>\nint main() { return 1; }\n", "#include <map>\n#include <set>\nint main() {}"});
  EXPECT_EQ(text.find("#include <map>"), text.rfind("#include <map>"));
  const auto first = text.find("namespace program_0 {\n#line 1\n\nint main() { return 1; }\n}");
  const auto second = text.find("namespace program_1 {\n#line 1\n\n\nint main() {}\n}");
  EXPECT_LT(text.find("#include <set>"), first);
  EXPECT_LT(first, second);
  EXPECT_LT(second, text.find("case 1: return call(program_1::main, count, words);"));
}

}  // namespace
}  // namespace lockstep::workshop
