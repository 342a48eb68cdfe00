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
      const std::string_view text = value;
      text_ = {text.data(), text.size()};
    } else if constexpr (kind == Kind::single || kind == Kind::number) {
      number_ = static_cast<double>(value);
    } else if constexpr (kind == Kind::pointer) {
      pointer_ = value;
    } else if constexpr (kind == Kind::natural) {
      natural_ = value;
    } else {
      integer_ = value;
    }
  }

 private:
  friend std::string vformat(std::string_view text, std::initializer_list<FormatArgument> arguments);
  struct Text {
    const char* data;
    std::size_t size;
  };

  base::FormatKind kind_;
  union {
    long long integer_;
    unsigned long long natural_;
    double number_;
    Text text_;
    const void* pointer_;
  };
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
