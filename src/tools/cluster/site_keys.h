#pragma once
// The tables of a site file's keys: reading, its errors, `lockstep site show` and the docs are made from
// them.

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tools/cluster/site.h"

namespace lockstep::cluster {

/// What a text of a site file may hold: most of them end up in a job script's directives.
enum class Text {
  free,      // shown to people
  word,      // see is_directive_word()
  option,    // a dash and letters: "-q", "--qos"
  line,      // one line
  variable,  // the name of an environment variable
};

template <class Owner>
struct SiteKey {
  using Field = std::variant<std::string Owner::*, int64_t Owner::*, std::chrono::milliseconds Owner::*,
                             std::vector<std::string> Owner::*>;
  const char* name;
  Field field;
  const char* help;
  Text text = Text::line;
  const char* choices = nullptr;  // with a blank between two; nullptr = free
};

const std::vector<SiteKey<Site>>& site_keys();
const std::vector<SiteKey<Queue>>& queue_keys();

/// One word that no scheduler and no shell takes for more: letters, digits and . _ + - @ : / = , and no dash
/// in front.
bool is_directive_word(const std::string& text);

/// The words of a key's choices.
std::vector<std::string> choices_of(const char* choices);

/// What of a directive would move the job's log, its name or its folder away from where it is followed: the
/// option; empty where there is none.
std::string moves_log(const std::string& scheduler, const std::string& directive);

/// Why the text is not of its kind; empty where it is.
std::string not_of_kind(const std::string& text, Text kind);

}  // namespace lockstep::cluster
