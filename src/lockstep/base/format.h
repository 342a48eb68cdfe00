#pragma once
// format() with fmt's syntax, checked at compile time. Only format.cpp includes fmt.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep::base {

// The check of a format's text and arguments does not use fmt's headers, because a program that links
// lockstep may have another fmt.

/// The types of arguments.
enum class FormatKind : std::uint8_t { boolean, character, integer, natural, single, number, text, pointer };

template <class T>
constexpr bool is_unknown_to_format = false;

template <class T>
constexpr FormatKind format_kind() {
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::same_as<Value, bool>) {
    return FormatKind::boolean;
  } else if constexpr (std::same_as<Value, char>) {
    return FormatKind::character;
  } else if constexpr (std::integral<Value>) {
    return std::is_signed_v<Value> ? FormatKind::integer : FormatKind::natural;
  } else if constexpr (std::floating_point<Value>) {
    return std::same_as<Value, float> ? FormatKind::single : FormatKind::number;
  } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    return FormatKind::text;
  } else {
    static_assert(
        std::is_same_v<Value, const void*> || std::is_same_v<Value, void*> || is_unknown_to_format<T>,
        "lockstep: format() supports numbers, texts, booleans and pointers to void");
    return FormatKind::pointer;
  }
}

// These are not constexpr, so a call at compile time is an error that shows the name.
inline void format_has_fewer_arguments_than_fields() {}
inline void format_has_more_arguments_than_fields() {}
inline void format_has_a_brace_without_its_partner() {}
inline void format_has_a_field_for_another_type() {}

/// Checks a format at compile time.
template <std::size_t N>
class FormatCheck {
 public:
  constexpr FormatCheck(std::string_view text, const std::array<FormatKind, N + 1>& kinds)
      : text_(text), kinds_(kinds) {
    while (place_ < text_.size()) literal();
    if (used_ < N) format_has_more_arguments_than_fields();
  }

 private:
  constexpr bool at(char wanted) const { return place_ < text_.size() && text_[place_] == wanted; }

  constexpr void literal() {
    const char c = text_[place_++];
    if (c != '{' && c != '}') return;
    if (at(c)) {
      ++place_;
    } else if (c == '}') {
      format_has_a_brace_without_its_partner();
    } else {
      field();
    }
  }

  // The argument's index: a number, or the next one.
  constexpr std::size_t argument() {
    std::size_t number = 0, digits = 0;
    for (; place_ < text_.size() && text_[place_] >= '0' && text_[place_] <= '9'; ++place_, ++digits)
      number = number * 10 + static_cast<std::size_t>(text_[place_] - '0');
    if (digits == 0) number = next_++;
    if (number >= N) format_has_fewer_arguments_than_fields();
    if (number >= used_) used_ = number + 1;
    return number;
  }

  constexpr void field() {
    const auto kind = kinds_[argument()];
    char last = '\0';
    while (place_ < text_.size() && !at('}')) {
      last = text_[place_++];
      if (last == '{') field();  // a width or a precision that is an argument
    }
    if (!at('}')) format_has_a_brace_without_its_partner();
    ++place_;
    if (!fits(last, kind)) format_has_a_field_for_another_type();
  }

  static constexpr bool fits(char type, FormatKind kind) {
    const bool is_real = kind == FormatKind::single || kind == FormatKind::number;
    const bool is_whole = kind == FormatKind::integer || kind == FormatKind::natural ||
                          kind == FormatKind::boolean || kind == FormatKind::character;
    if (std::string_view("eEfFgGaA").find(type) != std::string_view::npos) return is_real;
    if (std::string_view("dxXob").find(type) != std::string_view::npos) return is_whole;
    if (type == 's') return kind == FormatKind::text || kind == FormatKind::boolean;
    return true;
  }

  std::string_view text_;
  const std::array<FormatKind, N + 1>& kinds_;
  std::size_t place_ = 0, next_ = 0, used_ = 0;
};

/// A format's text, checked for arguments of these types.
template <class... Args>
class FormatText {
 public:
  template <class T>
  requires std::convertible_to<const T&, std::string_view>
  consteval FormatText(const T& text) : text_(text) {  // NOLINT(google-explicit-constructor)
    FormatCheck<sizeof...(Args)>(text_, {format_kind<Args>()..., FormatKind::pointer});
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

}  // namespace lockstep::base

namespace lockstep {

/// An argument of format(): a number, a string, a boolean or a pointer to void.
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

/// Like format(), but without the check at compile time.
std::string vformat(std::string_view text, std::initializer_list<FormatArgument> arguments);

/// A format string for arguments of these types.
template <class... Args>
using FormatText = base::FormatText<std::type_identity_t<Args>...>;

/// Formats arguments in fmt's syntax: format("{} of {}", 1, 2).
template <class... Args>
std::string format(FormatText<Args...> text, const Args&... args) {
  return vformat(text.text(), {FormatArgument(args)...});
}

}  // namespace lockstep
