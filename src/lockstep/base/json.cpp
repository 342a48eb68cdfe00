#include "lockstep/base/json.h"

namespace lockstep::base {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

OrderedJson to_json(const RankCall& seen) {
  OrderedJson json = {{"rank", seen.rank}, {"call", seen.call}, {"number", seen.number}};
  if (!seen.state.empty()) json["state"] = seen.state;
  return json;
}

OrderedJson to_json(const FailedCall& met) {
  OrderedJson json = {{"call", met.call}, {"number", met.number}};
  if (met.waited > 0) json["waited"] = met.waited;
  return json;
}

// T() if the field is missing or has another type.
template <class T>
T value_of(const Json& json, const char* name) {
  try {
    return json.at(name).get<T>();
  } catch (const Json::exception&) {
    return {};
  }
}

}  // namespace

void refuse_other_version() {
  throw InputError("the ranks run different versions of lockstep", "a message from another rank",
                   "start the same lockstep on every rank")
      .of(Code::versions);
}

OrderedJson to_json(const Fault& fault) {
  OrderedJson json = {{"code", name_of(fault.code)},
                      {"ranks", fault.ranks},
                      {"what", fault.what},
                      {"where", fault.where},
                      {"hint", fault.hint}};
  if (!fault.met_in.call.empty()) json["met_in"] = to_json(fault.met_in);
  for (const auto& seen : fault.seen) json["seen"].push_back(to_json(seen));
  return json;
}

std::optional<Fault> fault_in(const std::string& text) {
  const auto json = parse_json(text);
  if (!json.is_object() || !json.contains("code") || !json["code"].is_string()) return std::nullopt;
  Fault fault{.code = code_of(json["code"]),
              .ranks = value_of<std::vector<int>>(json, "ranks"),
              .what = value_of<std::string>(json, "what"),
              .where = value_of<std::string>(json, "where"),
              .hint = value_of<std::string>(json, "hint")};
  const auto met = value_of<Json>(json, "met_in");
  fault.met_in = {value_of<std::string>(met, "call"), value_of<uint64_t>(met, "number"),
                  value_of<double>(met, "waited")};
  for (const auto& seen : value_of<std::vector<Json>>(json, "seen"))
    fault.seen.push_back({value_of<int>(seen, "rank"), value_of<std::string>(seen, "call"),
                          value_of<uint64_t>(seen, "number"), value_of<std::string>(seen, "state")});
  return fault;
}

bool is_shallow_json(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char sign = text[i];
    if (quoted && sign == '\\') {
      ++i;  // an escaped character
    } else if (sign == '"') {
      quoted = !quoted;
    } else if (!quoted && (sign == '[' || sign == '{')) {
      if (++depth > kDeepestJson) return false;
    } else if (!quoted && (sign == ']' || sign == '}')) {
      --depth;
    }
  }
  return true;
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
std::string what_is_wrong(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const auto name = text.find("] ");
  return text.starts_with('[') && name != text.npos ? text.substr(name + 2) : text;
}

}  // namespace lockstep::base
