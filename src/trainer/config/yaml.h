#pragma once
// YAML to a small tree that knows where each node stands. Refuses what could surprise or hurt: see yaml.cpp.

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::config {

struct TextPlace {
  std::string file;  // or "--set"
  int line = 0;      // from 1; 0 = no position
  int column = 0;

  std::string text() const;
};

struct YamlNode;
using NodePtr = std::shared_ptr<const YamlNode>;

struct YamlNode {
  enum class Kind { null, scalar, list, map } kind = Kind::null;
  TextPlace place;
  std::string text;  // a scalar's
  bool quoted = false;
  std::vector<NodePtr> items;                        // a list's
  std::vector<std::pair<NodePtr, NodePtr>> entries;  // a map's, in the order of the text
};

/// The one document of the text; a null node when it is empty. Throws InputError with file:line:column.
NodePtr parse_yaml(const std::string& text, const std::string& file);

/// What a person would call the node: "a list of 3", "the text \"abc\"", ...
std::string describe(const YamlNode& node);

}  // namespace lockstep::config
