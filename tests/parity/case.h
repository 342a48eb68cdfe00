#pragma once
// One line of cases.txt.

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::parity {

struct Case {
  std::string name;
  std::map<std::string, std::string> values;

  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : found->second;
  }
  double number(const std::string& key, double otherwise) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
  }
  bool flag(const std::string& key, bool otherwise = false) const { return number(key, otherwise) != 0; }
  bool has(const std::string& key) const { return values.count(key) > 0; }

  std::vector<double> list(const std::string& key) const {
    std::vector<double> numbers;
    std::istringstream items(text(key, ""));
    for (std::string item; std::getline(items, item, ',');)
      numbers.push_back(std::strtod(item.c_str(), nullptr));
    return numbers;
  }
  bool runs_in(int world) const {
    for (const double one : list("worlds"))
      if (one == world) return true;
    return false;
  }
};

inline std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Case one;
    if (!(words >> one.name) || one.name[0] == '#') continue;
    for (std::string word; words >> word;)
      one.values[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    cases.push_back(one);
  }
  return cases;
}

}  // namespace lockstep::parity
