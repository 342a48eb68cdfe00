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

void read(const Json& json, const char* name, std::string& value) {
  if (const auto found = json.find(name); found != json.end() && found->is_string()) value = *found;
}

void read(const Json& json, const char* name, int& value) {
  if (const auto found = json.find(name); found != json.end() && found->is_number_integer()) value = *found;
}

void read(const Json& json, const char* name, uint64_t& value) {
  if (const auto found = json.find(name); found != json.end() && found->is_number_unsigned()) value = *found;
}

void read(const Json& json, const char* name, double& value) {
  if (const auto found = json.find(name); found != json.end() && found->is_number()) value = *found;
}

// every object of a list
template <class Take>
void read_all(const Json& json, const char* name, const Take& take) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) return;
  for (const auto& item : *found) take(item);
}

RankCall rank_call_in(const Json& json) {
  RankCall seen;
  read(json, "rank", seen.rank);
  read(json, "call", seen.call);
  read(json, "number", seen.number);
  read(json, "state", seen.state);
  return seen;
}

}  // namespace

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
  Fault fault{.code = code_of(json["code"])};
  read(json, "what", fault.what);
  read(json, "where", fault.where);
  read(json, "hint", fault.hint);
  read_all(json, "ranks", [&](const Json& rank) {
    if (rank.is_number_integer()) fault.ranks.push_back(rank);
  });
  if (const auto met = json.find("met_in"); met != json.end() && met->is_object()) {
    read(*met, "call", fault.met_in.call);
    read(*met, "number", fault.met_in.number);
    read(*met, "waited", fault.met_in.waited);
  }
  read_all(json, "seen", [&](const Json& seen) {
    if (seen.is_object()) fault.seen.push_back(rank_call_in(seen));
  });
  return fault;
}

bool is_shallow_json(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char sign = text[i];
    if (quoted && sign == '\\') {
      ++i;  // whatever stands behind it
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
