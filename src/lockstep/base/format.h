#pragma once
// format() for the whole house: fmt's syntax, checked while compiling, with fmt itself in format.cpp alone.

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/base/format_text.h"

namespace lockstep {

/// An argument of format(): a number, a text, a boolean or a pointer to void.
class FormatArgument {
 public:
  template <class T>
  FormatArgument(const T& value) : kind_(base::format_kind<T>()) {  // NOLINT(google-explicit-constructor)
    using Kind = base::FormatKind;
    constexpr auto kind = base::format_kind<T>();
    if constexpr (kind == Kind::text) {
      const auto text = text_of(value);
      value_.text = {text.data(), text.size()};
    } else if constexpr (kind == Kind::single || kind == Kind::number) {
      value_.number = static_cast<double>(value);
    } else if constexpr (kind == Kind::pointer) {
      value_.pointer = value;
    } else if constexpr (kind == Kind::natural) {
      value_.natural = value;
    } else {
      value_.integer = value;
    }
  }

 private:
  friend std::string vformat(std::string_view text, std::initializer_list<FormatArgument> arguments);
  static std::string_view text_of(std::string_view text) { return text; }
  static std::string_view text_of(const char* text) { return text ? text : "(null)"; }

  struct Text {
    const char* data;
    std::size_t size;
  };
  union Value {
    long long integer;
    unsigned long long natural;
    double number;
    Text text;
    const void* pointer;
  };

  base::FormatKind kind_;
  Value value_ = {};
};

/// What format() calls: the same without the check while compiling.
std::string vformat(std::string_view text, std::initializer_list<FormatArgument> arguments);

/// A text for these arguments.
template <class... Args>
using FormatText = base::FormatText<std::type_identity_t<Args>...>;

/// format("{} of {}", 1, 2), in fmt's syntax.
template <class... Args>
std::string format(FormatText<Args...> text, const Args&... args) {
  return vformat(text.text(), {FormatArgument(args)...});
}

}  // namespace lockstep
