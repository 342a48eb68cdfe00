// docs/config.md holds the table of keys and the open tables between two marks, and a change has to be
// carried over.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "trainer/config/config_text.h"

namespace lockstep::test {
namespace {

TEST(Reference, IsWhatTheDocsHold) {
  std::ifstream file("docs/config.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string begin = "<!-- from here on: lockstep config --reference -->\n";
  const size_t at = page.str().find(begin);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(page.str().substr(at + begin.size()), "\n" + config::reference())
      << "run: build/release/bin/lockstep config --reference, and put it there";
}

}  // namespace
}  // namespace lockstep::test
