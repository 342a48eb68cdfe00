#include "trainer/saved_model/predictions.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/format.h"
#include "lockstep/base/json.h"

namespace lockstep::train {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string csv_lines(const std::vector<Prediction>& all, bool regression) {
  std::string text;
  for (const auto& one : all) {
    text += std::to_string(one.sample);
    if (!one.source.empty()) text += "," + quoted(one.source);
    if (!regression) text += "," + quoted(one.name);
    for (const float number : one.numbers) text += format(",{:.9g}", number);
    text += "\n";
  }
  return text;
}

std::string json_lines(const std::vector<Prediction>& all, bool regression) {
  std::string text;
  for (const auto& one : all) {
    nlohmann::ordered_json json = {{"sample", one.sample}};
    if (!one.source.empty()) json["name"] = one.source;
    if (regression) {
      json["value"] = one.numbers[0];
    } else {
      json.update({{"class", one.name}, {"label", one.label}, {"probabilities", one.numbers}});
    }
    // a class is any text of a file's
    text += base::as_line(json) + "\n";
  }
  return text;
}

std::string csv_header(const std::vector<std::string>& class_names, bool named) {
  std::string text = named ? "sample,name" : "sample";
  if (class_names.empty()) return text + ",value\n";
  text += ",class";
  for (const auto& name : class_names) text += "," + quoted("p(" + name + ")");
  return text + "\n";
}

std::string json_document(const std::string& lines) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (size_t begin = 0; begin < lines.size();) {
    const auto end = lines.find('\n', begin);
    all.push_back(nlohmann::ordered_json::parse(lines.substr(begin, end - begin)));
    begin = end + 1;
  }
  return nlohmann::ordered_json{{"predictions", all}}.dump(1);
}

}  // namespace lockstep::train
