#include "trainer/cli/options.h"

#include <boost/program_options.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "trainer/cli/failure.h"
#include "trainer/config/keys.h"
#include "trainer/run_folder/console.h"

namespace po = boost::program_options;

namespace lockstep::cli {
namespace {

// Keys of the config in the place of options or of words: what to write in their place.

/// How near a name must be to a key.
enum class Near { named, spelt };  ///< a key's name or another tool's for it; or a typing error of one

std::string without_dashes(const std::string& option) {
  return option.substr(std::min(option.find_first_not_of('-'), option.size()));
}

// the key's path; a section is none
std::string key_for(const std::string& name, Near near) {
  auto word = name;
  std::replace(word.begin(), word.end(), '-', '_');
  auto path = near == Near::named ? config::meant_key(word) : config::nearest_path(word);
  if (config::find_key(path)) return path;
  const auto row = (path.empty() ? word : path) + ".name";  // a section: which model, which optimiser
  return config::find_key(row) ? row : "";
}

bool is_flag(const std::string& path) {
  Settings settings;
  return std::holds_alternative<bool*>(config::find_key(path)->field(settings));
}

std::string written(const std::string& path, const std::string& value) {
  const auto text = base::printable(value);
  const bool plain = text.find_first_of(" \t\"'$&;|<>()*?[]{}\\`!#") == text.npos;
  return plain ? format("--set {}={}", path, text) : format("--set '{}={}'", path, text);
}

// "--fp16" is a value of train.precision
bool is_value(const std::string& name, const std::string& path) {
  const auto& choices = config::find_key(path)->rules.choices;
  return std::find(choices.begin(), choices.end(), name) != choices.end();
}

// "--epochs=3", or "--epochs" and what follows it
std::string value_in(const std::vector<std::string>& args, const std::string& name, const std::string& path) {
  if (is_value(name, path)) return name;
  for (size_t i = 0; i < args.size(); ++i) {
    const auto equals = args[i].find('=');
    if (!args[i].starts_with('-') || without_dashes(args[i].substr(0, equals)) != name) continue;
    if (equals != args[i].npos) return args[i].substr(equals + 1);
    if (is_flag(path)) return "true";
    if (i + 1 < args.size() && !args[i + 1].starts_with("--")) return args[i + 1];
  }
  return "VALUE";
}

/// "--set train.epochs=3" for the option that stands as `--epochs 3` or `--epochs=3` in `args`; empty where
/// it means no key.
std::string setting_of_option(const std::string& option, const std::vector<std::string>& args, Near near) {
  const auto bare = without_dashes(option);
  const auto name = bare.substr(0, bare.find('='));
  const auto path = key_for(name, near);
  return path.empty() ? "" : written(path, value_in(args, name, path));
}

/// The same of a word without dashes: "train.epochs=3". Empty too where a file has that name.
std::string setting_of_word(const std::string& word) {
  const auto equals = word.find('=');
  std::error_code failed;
  if (equals == word.npos || std::filesystem::exists(word, failed)) return "";
  const auto path = key_for(word.substr(0, equals), Near::spelt);
  return path.empty() ? "" : written(path, word.substr(equals + 1));
}

/// The same of `--set train.epochs 3` in `args`; empty where each --set has its '='.
std::string setting_in_two_words(const std::vector<std::string>& args) {
  for (size_t i = 0; i + 2 < args.size(); ++i) {
    if (args[i] != "--set" || args[i + 1].find('=') != std::string::npos || args[i + 2].starts_with("--"))
      continue;
    const auto path = key_for(args[i + 1], Near::spelt);
    if (!path.empty()) return written(path, args[i + 2]);
  }
  return "";
}

// before anybody joins a job with it, so that it is said once
void check_launcher(const std::string& name, const std::string& where) {
  const auto choices = launch::launcher_choices();
  if (std::find(choices.begin(), choices.end(), name) != choices.end()) return;
  throw UsageError(format("unknown launcher '{}'", base::printable(name)), where,
                   format("choose one of {}", base::join(choices, ", ")));
}

void check_launcher_in(const std::vector<std::string>& sets) {
  constexpr std::string_view kSet = "launch.launcher=";
  for (const auto& set : sets) {
    if (set.starts_with(kSet)) check_launcher(set.substr(kSet.size()), "--set launch.launcher");
  }
}

struct Positional {
  std::string name;
  std::string* value;
  std::string help;
  bool required;
  std::vector<std::string>* rest = nullptr;  // in place of value
};

constexpr const char* kWords = "lockstep-words";  // boost's name for everything without dashes

// a shortened option (--res for --resume) would silently change its meaning when an option is added
constexpr int kStyle = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;

}  // namespace

struct Options::Parts {
  std::string command;
  std::string summary;
  std::vector<std::string> examples;
  std::vector<Positional> positionals;
  std::string more;  // the option that a word more is meant for
  std::vector<std::string> names = {"help", "log", "quiet", "verbose"};
  std::string lines;
  std::string notes;
  std::string heading;  // of the last note
  po::options_description options;
  po::variables_map values;

  template <class Semantic>
  void add(const std::string& name, Semantic* semantic, const std::string& placeholder,
           const std::string& help) {
    options.add_options()(name.c_str(), semantic);
    names.push_back(name);
    lines += line("--" + name + (placeholder.empty() ? "" : " " + placeholder), help);
  }

  bool takes(const std::string& name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  static std::string line(const std::string& left, const std::string& help) {
    if (left.size() > 24) return format("  {}\n  {:24}  {}\n", left, "", help);
    return format("  {:24}  {}\n", left, help);
  }

  std::string see() const { return format("see: lockstep {} --help", command); }

  // a slip in an option, a key of the config, then whatever is near of either
  std::string meant_by(const std::string& option, const std::vector<std::string>& args) const {
    const std::string bare = option.substr(std::min(option.find_first_not_of('-'), option.size()));
    const auto near = base::nearest(bare, names);
    if (near && base::edit_distance(bare, *near) <= 1) return "--" + *near;
    const bool sets = takes("set");
    if (auto named = sets ? setting_of_option(option, args, Near::named) : ""; !named.empty()) return named;
    if (near) return "--" + *near;
    return sets ? setting_of_option(option, args, Near::spelt) : "";
  }

  [[noreturn]] void refuse_meaning(const std::string& what, const std::string& meant) const {
    throw UsageError(what, "lockstep " + command,
                     (meant.empty() ? "" : format("did you mean {}? ", meant)) + see());
  }

  [[noreturn]] void unknown(const std::string& option, const std::vector<std::string>& args) const {
    refuse_meaning(format("unknown option '{}'", base::printable(option)), meant_by(option, args));
  }

  // before a word is taken for a file, and the next one for one too many
  void refuse_bare_settings(const std::vector<std::string>& words,
                            const std::vector<std::string>& args) const {
    if (!takes("set")) return;
    if (const auto meant = setting_in_two_words(args); !meant.empty())
      refuse_meaning("--set takes KEY=VALUE in one word", meant);
    for (const auto& word : words) {
      if (const auto meant = setting_of_word(word); !meant.empty())
        refuse_meaning(format("'{}' is a setting, and there is no --set before it", base::printable(word)),
                       meant);
    }
  }

  po::variables_map read(const std::vector<std::string>& args) const {
    po::options_description all;
    all.add(options).add_options()("help,h", po::bool_switch())("log", po::value<std::string>())(
        "quiet,q", po::bool_switch())("verbose,v", po::bool_switch())(kWords,
                                                                      po::value<std::vector<std::string>>());
    po::positional_options_description words;
    words.add(kWords, -1);
    po::variables_map map;
    try {
      po::store(po::command_line_parser(args).options(all).positional(words).style(kStyle).run(), map);
    } catch (const po::unknown_option& error) {
      unknown(error.get_option_name(), args);
    } catch (const po::error& error) {
      throw UsageError(error.what(), "lockstep " + command, see());
    }
    return map;
  }

  void set_level() const {
    const bool quiet = values["quiet"].as<bool>(), verbose = values["verbose"].as<bool>();
    const bool named = values.count("log") > 0;
    if (quiet + verbose + named > 1)
      throw UsageError("--log, -q and -v say the same thing", "lockstep " + command, "give one of them");
    if (named) log::set_level(log::parse_level(values["log"].as<std::string>()));
    if (quiet) set_quiet();
    if (verbose) log::set_level(kVerbose);
  }

  void take_words(const std::vector<std::string>& words) const {
    for (size_t i = 0; i < positionals.size(); ++i) {
      if (i < words.size() && positionals[i].rest) {
        return positionals[i].rest->assign(words.begin() + static_cast<int64_t>(i), words.end());
      } else if (i < words.size()) {
        *positionals[i].value = words[i];
      } else if (positionals[i].required) {
        throw UsageError(format("{} is missing", positionals[i].name), "lockstep " + command, see());
      }
    }
    if (words.size() <= positionals.size()) return;
    const auto word = base::printable(words[positionals.size()]);
    const bool open = !more.empty() && values[more].empty();
    refuse_meaning(format("unexpected argument: '{}'", word), open ? format("--{} {}", more, word) : "");
  }
};

void set_quiet() {
  log::set_level(log::Level::warning);
  run_folder::silence_trainings();
}

Options::Options(std::string command, std::string summary, std::vector<std::string> examples)
    : parts_(std::make_unique<Parts>()) {
  parts_->command = std::move(command);
  parts_->summary = std::move(summary);
  parts_->examples = std::move(examples);
}

Options::~Options() = default;

void Options::positional(const std::string& name, std::string& value, const std::string& help,
                         bool required) {
  parts_->positionals.push_back({name, &value, help, required});
}

void Options::positional(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  parts_->positionals.push_back({name, nullptr, help, true, &values});
}

void Options::add(const std::string& name, std::string& value, const std::string& placeholder,
                  const std::string& help) {
  parts_->add(name, po::value(&value), placeholder, help);
}

void Options::add(const std::string& name, std::vector<std::string>& values, const std::string& placeholder,
                  const std::string& help) {
  parts_->add(name, po::value(&values), placeholder, help);
}

void Options::add(const std::string& name, int64_t& value, const std::string& placeholder,
                  const std::string& help) {
  parts_->add(name, po::value(&value), placeholder, help);
}

void Options::add(const std::string& name, double& value, const std::string& placeholder,
                  const std::string& help) {
  parts_->add(name, po::value(&value), placeholder, help);
}

void Options::word_more(const std::string& name) {
  parts_->more = name;
}

void Options::flag(const std::string& name, bool& value, const std::string& help) {
  parts_->add(name, po::bool_switch(&value), "", help);
}

void Options::note(const std::string& heading, const std::string& left, const std::string& help) {
  if (heading != parts_->heading) parts_->notes += format("\n{}:\n", parts_->heading = heading);
  parts_->notes += Parts::line(left, help);
}

bool Options::parse(const std::vector<std::string>& args) {
  parts_->values = parts_->read(args);
  if (parts_->values["help"].as<bool>()) {
    std::fputs(help().c_str(), stdout);
    return false;
  }
  parts_->set_level();
  po::notify(parts_->values);
  if (given("launcher")) check_launcher(parts_->values["launcher"].as<std::string>(), "--launcher");
  if (parts_->takes("launcher") && given("set"))
    check_launcher_in(parts_->values["set"].as<std::vector<std::string>>());
  const auto words = parts_->values.count(kWords) > 0 ? parts_->values[kWords].as<std::vector<std::string>>()
                                                      : std::vector<std::string>{};
  parts_->refuse_bare_settings(words, args);
  parts_->take_words(words);
  return true;
}

bool Options::given(const std::string& name) const {
  const auto found = parts_->values.find(name);
  return found != parts_->values.end() && !found->second.empty() && !found->second.defaulted();
}

std::string Options::help() const {
  std::string usage = "usage: lockstep " + parts_->command;
  std::string words;
  for (const Positional& word : parts_->positionals) {
    usage += word.required ? " " + word.name : " [" + word.name + "]";
    words += Parts::line(word.name, word.help);
  }
  std::string text = format("lockstep {}: {}\n\n{} [options]\n\n{}{}", parts_->command, parts_->summary,
                            usage, words, parts_->lines);
  text += Parts::line("--log LEVEL", "debug, info, warning, error or silent (default info)");
  text += Parts::line("-q, --quiet", "warnings and errors alone, and no lines of a training");
  text += Parts::line("-v, --verbose", "more than usual: --log debug");
  text += Parts::line("-h, --help", "this page");
  text += parts_->notes;
  if (!parts_->examples.empty()) text += "\nexamples:\n";
  for (const std::string& example : parts_->examples) text += "  " + example + "\n";
  return text;
}

}  // namespace lockstep::cli
