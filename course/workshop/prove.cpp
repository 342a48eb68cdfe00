// `lockstep workshop prove`: every answer that a master knows gets the verdict that the master says.
#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>

#include "course/workshop/attempt.h"
#include "course/workshop/check.h"
#include "course/workshop/compile.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::minutes kLongestCompile{12};  // of all answers, on a machine that has other work

struct Answer {
  std::string name, text;
  bool passes;
  std::string words = {};  // of the message that a wrong one gets
};

std::vector<Answer> answers_of(const Master& exercise, size_t wrong) {
  std::vector<Answer> answers = {{"as it is found", exercise.task(), false, exercise.unsolved()},
                                 {"solved", exercise.solution(), true}};
  for (const auto& name : exercise.right_answers()) answers.push_back({name, exercise.answer(name), true});
  for (const auto& [name, words] : exercise.wrong_answers()) {
    if (wrong-- == 0) break;
    answers.push_back({name, exercise.answer(name), false, words});
  }
  return answers;
}

// One program for all answers, each in a namespace of its own: the compiler's time goes into the headers. Its
// name's end says which answer runs: together.3.
std::string source_of_all(const std::vector<Answer>& answers) {
  std::string includes, bodies, cases;
  std::set<std::string> known;
  for (size_t number = 0; number < answers.size(); ++number) {
    bodies += format("namespace program_{} {{\n#line 1\n", number);
    std::istringstream lines(answers[number].text);
    for (std::string line; std::getline(lines, line);) {
      const bool is_include = line.starts_with("#include ");
      if (is_include && known.insert(line).second) includes += line + "\n";
      bodies += (is_include ? "" : line) + "\n";
    }
    bodies += "}\n";
    cases += format("    case {}: return call(program_{}::main, count, words);\n", number, number);
  }
  // in a namespace main() returns nothing by itself
  return includes + "#include <string>\n#pragma GCC diagnostic error \"-Wreturn-type\"\n" + bodies +
         "namespace {\n"
         "[[maybe_unused]] int call(int (*program)(), int, char**) { return program(); }\n"
         "[[maybe_unused]] int call(int (*program)(int, char**), int count, char** words) {\n"
         "  return program(count, words);\n}\n}\n"
         "int main(int count, char** words) {\n  const std::string name = words[0];\n"
         "  switch (std::stoi(name.substr(name.rfind('.') + 1))) {\n" +
         cases + "  }\n  return 127;\n}\n";
}

// The program of each answer; none where they do not compile together, and are built one by one.
std::vector<std::string> programs_of(const std::vector<Answer>& answers, const fs::path& folder) {
  std::vector<std::string> programs;
  const auto all = folder / "together";
  base::replace_file(folder / "together.cpp", source_of_all(answers));
  try {
    compile(folder / "together.cpp", all, folder, kLongestCompile);
  } catch (const CheckFailure& objection) {
    output::line(format("-- built one by one: {}", objection.what()));
    return std::vector<std::string>(answers.size());
  }
  for (size_t number = 0; number < answers.size(); ++number) {
    programs.push_back(all.string() + format(".{}", number));
    fs::create_symlink(all, programs.back());
  }
  return programs;
}

// Empty where the verdict is as it should be.
std::string objection(const Answer& answer, const Verdict& verdict) {
  if (answer.passes != verdict.passed) return answer.passes ? "it should pass" : "it should not pass";
  const auto said = verdict.what + "\n" + verdict.think;
  return said.find(answer.words) == std::string::npos
             ? format("the feedback does not contain: {}", answer.words)
             : "";
}

}  // namespace

bool prove(const Master& exercise, const std::string& folder, size_t wrong) {
  bool is_good = true;
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
    const auto what = objection(answer, verdict);
    if (!what.empty()) output::line(format("{}: {}: {}", exercise.name(), answer.name, what));
    is_good = is_good && what.empty();
  }
  return is_good;
}

}  // namespace lockstep::workshop
