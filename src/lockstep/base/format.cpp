#include "lockstep/base/format.h"

#define FMT_HEADER_ONLY
#include "lockstep/base/format.h"

#include <fmt/args.h>
#include <fmt/format.h>

namespace lockstep {

__attribute__((visibility("default"))) std::string vformat(std::string_view text,
                                                           std::initializer_list<FormatArgument> arguments) {
  using Kind = base::FormatKind;
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  store.reserve(arguments.size(), 0);
  for (const auto& argument : arguments) {
    switch (argument.kind_) {
      case Kind::boolean:
        store.push_back(argument.value_.integer != 0);
        break;
      case Kind::character:
        store.push_back(static_cast<char>(argument.value_.integer));
        break;
      case Kind::integer:
        store.push_back(argument.value_.integer);
        break;
      case Kind::natural:
        store.push_back(argument.value_.natural);
        break;
      case Kind::single:
        store.push_back(static_cast<float>(argument.value_.number));
        break;
      case Kind::number:
        store.push_back(argument.value_.number);
        break;
      case Kind::text:
        store.push_back(fmt::string_view(argument.value_.text.data, argument.value_.text.size));
        break;
      case Kind::pointer:
        store.push_back(argument.value_.pointer);
        break;
    }
  }
  return fmt::vformat(fmt::string_view(text.data(), text.size()), store);
}

}  // namespace lockstep
