#pragma once
// A subcommand's arguments in a few lines: --help with examples, errors that name the nearest option.
//
//   std::string path;
//   std::vector<std::string> sets;
//   cli::Options options("config", "every key of a config", {"lockstep config configs/mnist.yaml"});
//   options.positional("CONFIG.yaml", path, "the config file");
//   options.add("set", sets, "KEY=VALUE", "override a key; may be given again");
//   if (!options.parse(args)) return kDone;      // --help was asked for and printed

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/log.h"

namespace lockstep::cli {

/// What -q asks for: warnings and errors alone, and none of a training's lines.
void set_quiet();
inline constexpr auto kVerbose = log::Level::debug;  ///< of -v

/// What to do where the file of --out cannot be written.
inline constexpr const char* kElsewhere = "choose another place with --out";

/// The arguments of one subcommand. Every one also takes --help, --log LEVEL, -q and -v.
class Options {
 public:
  Options(std::string command, std::string summary, std::vector<std::string> examples = {});
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  /// A word without dashes; required ones come before optional ones.
  void positional(const std::string& name, std::string& value, const std::string& help, bool required = true);

  /// One word or more, after all others.
  void positional(const std::string& name, std::vector<std::string>& values, const std::string& help);

  /// --name VALUE. A vector may be given again and again; a bool is a flag without a value.
  void add(const std::string& name, std::string& value, const std::string& placeholder,
           const std::string& help);
  void add(const std::string& name, std::vector<std::string>& values, const std::string& placeholder,
           const std::string& help);
  void add(const std::string& name, int64_t& value, const std::string& placeholder, const std::string& help);
  void add(const std::string& name, double& value, const std::string& placeholder, const std::string& help);
  /// What a word more than there are positionals was meant for: --name of add().
  void word_more(const std::string& name);
  void flag(const std::string& name, bool& value, const std::string& help);
  /// A line of --help below the options, under a heading of its own.
  void note(const std::string& heading, const std::string& left, const std::string& help);

  /// Fills the variables; false when --help was asked for and has been printed. Throws UsageError.
  bool parse(const std::vector<std::string>& args);
  /// Whether the option stood on the command line.
  bool given(const std::string& name) const;
  std::string help() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::cli
