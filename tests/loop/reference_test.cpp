// docs/reference/config.md holds the tables of keys between two marks; a change has to be copied there.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "trainer/config/config_text.h"

namespace lockstep::test {
namespace {

TEST(Reference, IsWhatTheDocsHold) {
  std::ifstream file("docs/reference/config.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string begin = "<!-- generated: reference -->\n";
  const size_t at = page.str().find(begin);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(page.str().substr(at + begin.size()), "\n" + config::reference() + "<!-- end -->\n")
      << "run: build/release/bin/lockstep config --reference, and put it there";
}

}  // namespace
}  // namespace lockstep::test
