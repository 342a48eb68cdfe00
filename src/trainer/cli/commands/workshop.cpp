// lockstep workshop: the course, copied to a learner's folder, made ready for a class, and proven.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <limits>

#include "course/workshop/compile.h"
#include "course/workshop/course.h"
#include "course/workshop/folder.h"
#include "course/workshop/judge.h"
#include "course/workshop/overview.h"
#include "course/workshop/process/interruption.h"
#include "course/workshop/prove.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/temporary_folder.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/first_of_launched.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

struct Wishes {
  bool as_json = false;
  int64_t wrong = std::numeric_limits<int64_t>::max();
};

// the one word that an action wants
const std::string& only(const Words& words, const std::string& question, const std::string& form) {
  if (words.size() != 1) throw UsageError(question, "lockstep workshop", form);
  return words.front();
}

int init(const Words& words, const Wishes&) {
  const auto course = workshop::Folder::init(only(words, "where to?", "lockstep workshop init DIR"));
  output::line(format("{}\nBegin with {}/README.md; cd there, then lockstep check says what comes next.",
                      course.path(), course.path()));
  return kDone;
}

int prepare(const Words&, const Wishes&) {
  const bool is_there = workshop::precompiled_folder().has_value();
  if (!is_there) log::info("this takes 30 s of a core that is free, and minutes on a busy machine");
  const auto begin = std::chrono::steady_clock::now();
  output::line(workshop::precompile());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log::info(is_there ? "it was there already" : format("ready, after {:.0f} s", took.count()));
  return kDone;
}

// for who adds an exercise: every answer that its master knows
int prove(const Words& words, const Wishes& wishes) {
  const auto exercise =
      workshop::find_exercise(only(words, "which exercise?", "lockstep workshop prove EXERCISE"));
  const base::TemporaryFolder folder;
  return workshop::prove(exercise, folder.path(), static_cast<size_t>(wishes.wrong)) ? kDone : kFailed;
}

// a program of the course, or of the learner's own, which nobody judges
int build(const Words& words, const Wishes&) {
  const auto& file = only(words, "which program?", "lockstep workshop build FILE.cpp");
  const auto source = std::filesystem::absolute(file);
  if (!std::filesystem::is_regular_file(source)) throw InputError("there is no such file", file);
  const auto program = std::filesystem::path(workshop::Folder::find(".").build()) / source.stem();
  const base::TemporaryFolder scratch;
  try {
    workshop::compile(source, program, scratch.path());
  } catch (const workshop::NotYet& objection) {
    throw InputError(objection.what(), file, objection.think());
  }
  output::line(std::filesystem::relative(program).string());
  return kDone;
}

int progress(const Words& folders, const Wishes& wishes) {
  if (folders.empty())
    throw UsageError("missing DIR", "lockstep workshop", "lockstep workshop progress DIR...");
  wishes.as_json ? workshop::print_class_json(folders) : workshop::print_class(folders);
  return kDone;
}

struct WorkshopAction {
  const char* name;
  const char* form;
  const char* help;
  int (*run)(const Words& words, const Wishes& wishes);
};
constexpr WorkshopAction kWorkshopActions[] = {
    {"init", "init DIR", "a learner's folder: copies the course, and puts back what is missing", init},
    {"build", "build FILE.cpp", "builds a program of the course or of your own, which nobody judges", build},
    {"prepare", "prepare", "once an install: precompiles the header, so that checks are quick", prepare},
    {"prove", "prove EXERCISE", "for who adds one: tries every answer that its master knows", prove},
    {"progress", "progress DIR...", "for who teaches: how far the learners have come", progress}};

int act(const std::string& action, const Words& words, const Wishes& wishes) {
  for (const auto& row : kWorkshopActions) {
    if (action == row.name) return row.run(words, wishes);
  }
  throw UsageError(format("workshop cannot '{}'", base::printable(action)), "lockstep workshop",
                   "lockstep workshop init DIR, build FILE, prepare, prove EXERCISE, or progress DIR...");
}

}  // namespace

int run_workshop(const std::vector<std::string>& args) {
  Words words;
  Wishes wishes;
  Options options("workshop", "the course: copied to a learner's folder, made ready for a class",
                  {"lockstep workshop init my-course", "lockstep workshop build programs/single_process.cpp",
                   "lockstep workshop prepare", "lockstep workshop progress /home/*/my-course"});
  options.positional("ACTION [DIR...]", words, "what to do, and with what");
  options.flag("json", wishes.as_json, "of progress: every exercise of every folder, as JSON");
  options.add("wrong", wishes.wrong, "N", "of prove: try the first N wrong answers alone");
  for (const auto& row : kWorkshopActions) options.note("actions", row.form, row.help);
  if (!options.parse(args)) return kDone;
  if (!is_first_of_launched()) return kDone;
  try {
    return act(words.front(), {words.begin() + 1, words.end()}, wishes);
  } catch (const workshop::Interrupted& word) {
    std::signal(word.number(), SIG_DFL);
    return std::raise(word.number());
  }
}

}  // namespace lockstep::cli
