#include "trainer/cli/options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "trainer/cli/failure.h"
#include "trainer/config/keys.h"
#include "trainer/config/numbers.h"
#include "trainer/run_folder/console.h"

namespace po = boost::program_options;

namespace lockstep::cli {
namespace {

constexpr const char* kWords = "lockstep-words";  // Boost's name for everything without dashes

// A shortened option (--res for --resume) would change its meaning when an option is added.
constexpr int kStyle = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;

bool is_short(const std::string& name) {
  return name == "quiet" || name == "verbose" || name == "help";
}

constexpr size_t kOwn = 4;  // the options that every command has

// In lines of at most 100 columns.
std::string help_line(const std::string& left, const std::string& help) {
  const auto text = base::wrapped(std::string(26, ' ') + help, 98).substr(26);
  if (left.size() > 24) return format("  {}\n  {:24}  {}\n", left, "", text);
  return format("  {:24}  {}\n", left, text);
}

std::string manual_line(const std::string& left, const std::string& help) {
  return format(".TP\n\\fB{}\\fR\n{}\n", as_roff(left), as_roff(help));
}

// "epochs" of "--epochs=3"; the long name of -h, -q and -v.
std::string name_in(const std::string& arg) {
  const auto name = arg.substr(0, arg.find('='));
  if (name == "-h") return "help";
  if (name == "-q") return "quiet";
  if (name == "-v") return "verbose";
  return name.starts_with("--") ? name.substr(2) : name;
}

}  // namespace

Options::Options(std::string command, std::string summary, std::vector<std::string> examples)
    : command_(std::move(command)), summary_(std::move(summary)), examples_(std::move(examples)) {
  add("log", level_, "LEVEL", "debug, info, warning, error or silent (default info)");
  flag("quiet", quiet_, "only warnings and errors, and no training log");
  flag("verbose", verbose_, "more log lines: --log debug");
  flag("help", help_, "this page");
}

void Options::refuse(const std::string& what, const std::string& hint) const {
  throw UsageError(
      what, "lockstep " + command_,
      hint.empty() || hint.ends_with(' ') ? format("{}see lockstep {} --help", hint, command_) : hint);
}

// It may be a slip of the pen, or a key of the config.
void Options::refuse_unknown(const std::string& arg) const {
  const auto bare = name_in(arg).substr(std::min(name_in(arg).find_first_not_of('-'), name_in(arg).size()));
  std::vector<std::string> names;
  for (const auto& option : options_) names.push_back(option.name);
  const auto near = base::nearest(bare, names);
  std::string meant = near ? "--" + *near : "";
  for (const auto* foreign : {"gpus", "n", "np", "nproc-per-node", "num-processes"})
    if (bare == foreign && find("ranks")) meant = "--ranks";
  auto key = find("set") ? config::nearest_path(bare) : "";
  if (config::find_key(key + ".name")) key += ".name";  // of a section: which model, which optimizer
  if (config::find_key(key) && (!near || base::edit_distance(bare, *near) > 1)) {
    const auto equals = arg.find('=');
    meant =
        format("--set {}={}", key, equals == arg.npos ? "VALUE" : base::printable(arg.substr(equals + 1)));
  }
  refuse(format("unknown option '{}'", base::printable(arg)), base::did_you_mean(meant));
}

const Options::Option* Options::find(const std::string& name) const {
  const auto found = std::ranges::find(options_, name, &Option::name);
  return found == options_.end() ? nullptr : &*found;
}

bool Options::given(const std::string& name) const {
  const auto* option = find(name);
  return option && option->given;
}

void Options::set(Option& option, const std::string& text) const {
  const auto wrong = [&](const char* kind, const char* example) {
    refuse(format("--{} needs {}, not '{}'", option.name, kind, base::printable(text)),
           format("pass {}, for example --{} {}", kind, option.name, example));
  };
  if (auto** list = std::get_if<std::vector<std::string>*>(&option.value)) {
    (*list)->push_back(text);
  } else if (option.given) {
    refuse(format("--{} is given twice", option.name), "remove one of them");
  } else if (auto** whole = std::get_if<int64_t*>(&option.value)) {
    const auto value = config::parse_int(text);
    value ? static_cast<void>(** whole = *value) : wrong("an integer", "2");
  } else if (auto** number = std::get_if<double*>(&option.value)) {
    const auto value = config::parse_number(text);
    value ? static_cast<void>(** number = *value) : wrong("a number", "0.5");
  } else {
    *std::get<std::string*>(option.value) = text;
  }
  option.given = true;
}

std::vector<po::option> Options::parsed_options(const std::vector<std::string>& args) const {
  po::options_description known;
  for (const auto& option : options_) {
    const bool is_flag = std::holds_alternative<bool*>(option.value);
    const auto name = option.name + (is_short(option.name) ? "," + option.name.substr(0, 1) : "");
    is_flag ? known.add_options()(name.c_str(), "")
            : known.add_options()(name.c_str(), po::value<std::vector<std::string>>(), "");
  }
  known.add_options()(kWords, po::value<std::vector<std::string>>());
  po::positional_options_description words;
  words.add(kWords, -1);
  try {
    return po::command_line_parser(args)
        .options(known)
        .positional(words)
        .style(kStyle)
        .allow_unregistered()
        .run()
        .options;
  } catch (const po::invalid_command_line_syntax& error) {
    const auto option = "--" + name_in(error.get_option_name());
    const auto* known_option = find(option.substr(2));
    if (error.kind() == po::invalid_syntax::extra_parameter || !known_option)
      refuse(option + " takes no value", "remove the value");
    refuse(format("{} needs a value: {}", option, known_option->placeholder));
  } catch (const po::error& error) {
    refuse(error.what());
  }
}

bool Options::parse(const std::vector<std::string>& args) {
  if (args.size() > 1 && args[0] == kComplete) return complete(args[args.size() - 2], args.back()), false;
  if (!args.empty() && args[0] == kManual) return std::fputs(help(true).c_str(), stdout), false;
  const auto end_of_options = std::ranges::find(args, "--");
  if (std::any_of(args.begin(), end_of_options, [](const auto& arg) { return name_in(arg) == "help"; })) {
    std::fputs(help().c_str(), stdout);
    return false;
  }
  std::vector<std::string> words;
  for (const auto& parsed : parsed_options(args)) {
    if (parsed.unregistered) refuse_unknown(parsed.original_tokens[0]);
    const auto option = std::ranges::find(options_, parsed.string_key, &Option::name);
    if (option == options_.end()) {
      words.insert(words.end(), parsed.value.begin(), parsed.value.end());
    } else if (auto** flag = std::get_if<bool*>(&option->value)) {
      **flag = option->given = true;
    } else {
      set(*option, parsed.value.at(0));
    }
  }
  set_level();
  check_launcher();
  take_words(words);
  return true;
}

void Options::set_level() const {
  if (quiet_ + verbose_ + !level_.empty() > 1)
    throw UsageError("--log, -q and -v cannot be combined", "lockstep " + command_, "use one of them");
  if (!level_.empty()) log::set_level(log::parse_level(level_));
  if (verbose_) log::set_level(log::Level::debug);
  if (!quiet_) return;
  log::set_level(log::Level::warning);
  run_folder::silence_trainings();
}

// Before anybody joins a job with it, so that the error is printed once.
void Options::check_launcher() const {
  const auto* launcher = find("launcher");
  if (!launcher) return;
  const auto check = [choices = launch::launcher_choices()](const std::string& name,
                                                            const std::string& where) {
    if (std::ranges::find(choices, name) != choices.end()) return;
    throw UsageError(format("unknown launcher '{}'", base::printable(name)), where,
                     format("choose one of {}", base::join(choices, ", ")));
  };
  if (launcher->given) check(*std::get<std::string*>(launcher->value), "--launcher");
  constexpr std::string_view kKey = "launch.launcher=";
  if (!given("set")) return;
  for (const auto& set : *std::get<std::vector<std::string>*>(find("set")->value))
    if (set.starts_with(kKey)) check(set.substr(kKey.size()), "--set launch.launcher");
}

void Options::take_words(const std::vector<std::string>& words) const {
  for (size_t i = 0; i < words_.size(); ++i) {
    if (i < words.size() && words_[i].rest) {
      return words_[i].rest->assign(words.begin() + static_cast<int64_t>(i), words.end());
    } else if (i < words.size()) {
      *words_[i].value = words[i];
    } else if (words_[i].required) {
      const auto taken = std::ranges::find_if(options_, [](const Option& option) {
        auto* const* text = std::get_if<std::string*>(&option.value);
        auto* const* list = std::get_if<std::vector<std::string>*>(&option.value);
        const auto last = text ? **text : list && option.given ? (*list)->back() : "";
        return option.given && last.ends_with(".yaml") && last.find('=') == last.npos;
      });
      refuse(
          format("missing argument {}", words_[i].name) +
          (taken == options_.end() ? "" : format(": --{} took the file's name as its value", taken->name)));
    }
  }
  if (words.size() <= words_.size()) return;
  const auto word = base::printable(words[words_.size()]);
  const bool setting = find("set") && word.find('=') != word.npos;
  refuse(format("unexpected argument: '{}'", word), base::did_you_mean(setting ? "--set " + word : ""));
}

std::string Options::help(bool manual) const {
  auto usage = "lockstep " + command_;
  for (const auto& word : words_) usage += word.required ? " " + word.name : " [" + word.name + "]";
  usage += " [options]";
  auto text = manual ? format(".SS {}\n{}\n", as_roff(usage), as_roff(summary_))
                     : base::wrapped(format("lockstep {}: {}", command_, summary_), 100) +
                           "\n\nusage: " + usage + "\n\n";
  const auto line = manual ? manual_line : help_line;
  const auto heading = [&](const std::string& name) {
    text += format("{}\n{}:\n", manual ? ".PP" : "", name);
  };
  for (const auto& word : words_) text += line(word.name, word.help);
  for (size_t i = 0; i < options_.size() - (manual ? kOwn : 0); ++i) {
    const auto& option = options_[(i + kOwn) % options_.size()];  // what every command has comes last
    text += line((is_short(option.name) ? format("-{}, ", option.name[0]) : "") + "--" + option.name +
                     (option.placeholder.empty() ? "" : " " + option.placeholder),
                 option.help);
  }
  for (size_t i = 0; i < notes_.size(); ++i) {
    if (i == 0 || notes_[i][0] != notes_[i - 1][0]) heading(notes_[i][0]);
    text += line(notes_[i][1], notes_[i][2]);
  }
  if (!examples_.empty()) heading("examples");
  for (const auto& example : examples_) text += (manual ? ".br\n" + as_roff(example) : "  " + example) + "\n";
  return text;
}

void Options::complete(const std::string& before, const std::string& typed) const {
  for (const auto& option : options_) {
    if (typed.starts_with('-')) print_completion(typed, "--" + option.name, option.help);
    if (before == "--launcher" && option.name == "launcher")
      for (const auto& name : launch::launcher_choices()) print_completion(typed, name, "");
    if (before == "--set" && option.name == "set")
      for (const auto& key : config::keys()) print_completion(typed, key.path + "=", key.help);
  }
}

void print_completion(const std::string& typed, const std::string& name, const std::string& help) {
  if (name.starts_with(typed)) std::puts((name + "\t" + help).c_str());
}

std::string as_roff(const std::string& text) {
  std::string escaped = "\\&";  // or a line that begins with a dot would be a request
  for (const char sign : text) escaped += sign == '-' ? "\\-" : sign == '\\' ? "\\e" : std::string(1, sign);
  return escaped;
}

}  // namespace lockstep::cli
