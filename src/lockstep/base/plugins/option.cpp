// The keys of a row's own, from text.
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/table.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

const std::string* find(const RowOptions& options, const std::string& name) {
  const auto found = options.find(name);
  return found == options.end() ? nullptr : &found->second;
}

[[noreturn]] void refuse_option(const std::string& name, const std::string& text, const char* wanted) {
  throw InputError(format("options.{} must be {}, not '{}'", name, wanted, base::printable(text)),
                   "options." + name, "change it in the config");
}

template <class Number>
Number number(const RowOptions& options, const std::string& name, Number otherwise, const char* wanted) {
  const auto* text = find(options, name);
  if (!text) return otherwise;
  Number value{};
  const char* end = text->data() + text->size();
  const auto [at, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || at != end) refuse_option(name, *text, wanted);
  return value;
}

}  // namespace

template <>
double option(const RowOptions& options, const std::string& name, double otherwise) {
  return number(options, name, otherwise, "a number");
}

template <>
int64_t option(const RowOptions& options, const std::string& name, int64_t otherwise) {
  return number(options, name, otherwise, "a whole number");
}

template <>
bool option(const RowOptions& options, const std::string& name, bool otherwise) {
  const auto* text = find(options, name);
  if (!text) return otherwise;
  if (*text != "true" && *text != "false") refuse_option(name, *text, "true or false");
  return *text == "true";
}

template <>
std::string option(const RowOptions& options, const std::string& name, std::string otherwise) {
  const auto* text = find(options, name);
  return text ? *text : otherwise;
}

}  // namespace lockstep
