#include "course/workshop/together.h"

#include <set>
#include <sstream>

#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

// in a namespace main() returns nothing by itself
constexpr const char* kOpening = "#include <string>\n#pragma GCC diagnostic error \"-Wreturn-type\"\n";

constexpr const char* kCalling = R"(namespace {
[[maybe_unused]] int call(int (*program)(), int, char**) { return program(); }
[[maybe_unused]] int call(int (*program)(int, char**), int count, char** words) { return program(count, words); }
}
int main(int count, char** words) {
  const std::string name = words[0];
  switch (std::stoi(name.substr(name.rfind('.') + 1))) {
)";

bool is_include(const std::string& line) {
  return line.starts_with("#include ");
}

// each once, as one that is precompiled is not there a second time
std::string includes_of(const std::vector<std::string>& programs) {
  std::string found;
  std::set<std::string> known;
  for (const auto& program : programs) {
    std::istringstream lines(program);
    for (std::string line; std::getline(lines, line);) {
      if (is_include(line) && known.insert(line).second) found += line + "\n";
    }
  }
  return found;
}

std::string body_of(const std::string& program) {
  std::string body;
  std::istringstream lines(program);
  for (std::string line; std::getline(lines, line);) body += (is_include(line) ? "" : line) + "\n";
  return body;
}

}  // namespace

std::string together(const std::vector<std::string>& programs) {
  auto text = includes_of(programs) + kOpening;
  std::string calls = kCalling;
  for (size_t number = 0; number < programs.size(); ++number) {
    text += format("namespace program_{} {{\n#line 1\n{}}}\n", number, body_of(programs[number]));
    calls += format("    case {}: return call(program_{}::main, count, words);\n", number, number);
  }
  return text + calls + "  }\n  return 127;\n}\n";
}

}  // namespace lockstep::workshop
