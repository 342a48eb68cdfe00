#pragma once
// The arguments of a subcommand: --help with examples, and errors that name the nearest option.
//
//   std::string path;
//   std::vector<std::string> sets;
//   cli::Options options("config", "every key of a config", {"lockstep config configs/mnist.yaml"});
//   options.positional("CONFIG.yaml", path, "the config file");
//   options.add("set", sets, "KEY=VALUE", "override a key; repeatable");
//   if (!options.parse(args)) return kDone;      // --help was asked for and printed

#include <array>
#include <boost/program_options/option.hpp>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::cli {

/// As a command's first argument: print its part of the manual, or what completes the last argument, a line
/// each: "NAME\tHELP".
inline constexpr const char *kManual = "--manual", *kComplete = "--complete";
void print_completion(const std::string& typed, const std::string& name, const std::string& help);
/// The text as the manual has it, in troff's language.
std::string as_roff(const std::string& text);

/// What to do where the file of --out cannot be written.
inline constexpr const char* kChooseOutHint = "choose another place with --out";

/// Every subcommand also takes --help, --log LEVEL, -q and -v.
class Options {
 public:
  Options(std::string command, std::string summary, std::vector<std::string> examples = {});
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  /// A word without dashes; required ones come before optional ones.
  void positional(const std::string& name, std::string& value, const std::string& help,
                  bool required = true) {
    words_.push_back({name, &value, nullptr, help, required});
  }
  /// One word or more, after all others.
  void positional(const std::string& name, std::vector<std::string>& values, const std::string& help) {
    words_.push_back({name, nullptr, &values, help, true});
  }

  /// --name VALUE, of a std::string, int64_t or double; a vector of strings may be given again and again.
  template <class Value>
  void add(const std::string& name, Value& value, const std::string& placeholder, const std::string& help) {
    options_.push_back({name, &value, placeholder, help});
  }
  void flag(const std::string& name, bool& value, const std::string& help) {
    options_.push_back({name, &value, "", help});
  }
  void launcher(std::string& name) {
    add("launcher", name, "NAME",
        "what started the ranks: auto, slurm, openmpi, ... (default auto); none = one process");
  }
  /// A line of --help below the options, under a heading of its own.
  void note(const std::string& heading, const std::string& left, const std::string& help) {
    notes_.push_back({heading, left, help});
  }

  /// Fills the variables; false when --help was asked for and has been printed. Throws UsageError.
  bool parse(const std::vector<std::string>& args);
  /// Whether the option was on the command line.
  bool given(const std::string& name) const;
  std::string help(bool manual = false) const;

 private:
  struct Option {
    std::string name;
    std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*> value;
    std::string placeholder, help;
    bool given = false;
  };
  struct Word {
    std::string name;
    std::string* value;
    std::vector<std::string>* rest;  // instead of value
    std::string help;
    bool required;
  };

  [[noreturn]] void refuse(const std::string& what, const std::string& hint = "") const;
  [[noreturn]] void refuse_unknown(const std::string& arg) const;
  const Option* find(const std::string& name) const;
  std::vector<boost::program_options::option> parsed_options(const std::vector<std::string>& args) const;
  void set(Option& option, const std::string& text) const;
  void take_words(const std::vector<std::string>& words) const;
  void check_launcher() const;
  void set_level() const;
  void complete(const std::string& before, const std::string& typed) const;

  std::string command_, summary_;
  std::vector<std::string> examples_;
  std::vector<Word> words_;
  std::vector<Option> options_;
  std::vector<std::array<std::string, 3>> notes_;  // heading, left, help
  bool help_ = false, quiet_ = false, verbose_ = false;
  std::string level_;
};

}  // namespace lockstep::cli
