// An exercise is proven: each answer that its master knows is told what the master says.
#include "course/workshop/check.h"

#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>
#include <vector>

#include "course/workshop/compile.h"
#include "course/workshop/judge.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
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

namespace {

constexpr size_t kLeastWrongAnswers = 2;
constexpr std::chrono::minutes kLongestCompile{12};  // of all answers, on a machine that has other work

struct Answer {
  std::string name, text, words;  // no words: it passes
};

std::vector<Answer> answers_of(const Master& exercise, size_t wrong) {
  std::vector<Answer> answers = {{"as it is found", exercise.task(), exercise.unsolved()},
                                 {"solved", exercise.solution(), ""}};
  for (const auto& name : exercise.right_answers()) answers.push_back({name, exercise.answer(name), ""});
  for (const auto& [name, words] : exercise.wrong_answers()) {
    if (wrong-- == 0) break;
    answers.push_back({name, exercise.answer(name), words});
  }
  return answers;
}

// A program for each answer, all of them built at once: by itself, each would cost as much. None where they
// do not compile together.
std::vector<std::string> programs_of(const std::vector<Answer>& answers, const fs::path& folder) {
  std::vector<std::string> texts, programs;
  for (const auto& answer : answers) texts.push_back(answer.text);
  const auto all = folder / "together";
  base::replace_file(folder / "together.cpp", together(texts));
  try {
    compile(folder / "together.cpp", all, folder, kLongestCompile);
  } catch (const NotYet& objection) {
    output::line(format("-- built one by one: {}", objection.what()));
    return std::vector<std::string>(answers.size());
  }
  for (size_t number = 0; number < answers.size(); ++number) {
    programs.push_back(all.string() + format(".{}", number));
    fs::create_symlink(all, programs.back());
  }
  return programs;
}

// empty where it is told what it should be
std::string objection(const Answer& answer, const Verdict& verdict) {
  if (answer.words.empty()) return verdict.passed ? "" : "it should pass";
  if (verdict.passed) return "it should not pass";
  const auto said = verdict.what + "\n" + verdict.think;
  return said.find(answer.words) == std::string::npos ? format("it is not told: {}", answer.words) : "";
}

}  // namespace

bool prove(const Master& exercise, const std::string& folder, size_t wrong) {
  bool good = true;
  const auto object = [&](const std::string& name, const std::string& what) {
    output::line(format("{}: {}: {}", exercise.name(), name, what));
    good = false;
  };
  if (exercise.unsolved().empty()) object("master", "there is no //@ unsolved");
  if (exercise.hints().empty()) object("master", "there is no //@ hint");
  if (exercise.wrong_answers().size() < kLeastWrongAnswers)
    object("master", "there are fewer than two typical wrong answers");
  const auto file = fs::path(folder) / (exercise.name() + exercise.extension());
  const auto answers = answers_of(exercise, wrong);
  const auto programs = exercise.extension() == ".cpp" ? programs_of(answers, folder)
                                                       : std::vector<std::string>(answers.size());
  for (size_t number = 0; number < answers.size(); ++number) {
    const auto& answer = answers[number];
    base::replace_file(file, answer.text);
    output::line(format("-- {}", answer.name));
    const auto verdict = try_file(exercise, file, folder, programs[number]);
    if (!verdict.passed) output::line(verdict.what + (verdict.think.empty() ? "" : "\n" + verdict.think));
    if (const auto what = objection(answer, verdict); !what.empty()) object(answer.name, what);
  }
  return good;
}

}  // namespace lockstep::workshop
