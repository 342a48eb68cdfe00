#include "trainer/config/yaml.h"

#include <yaml-cpp/yaml.h>

#include <map>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::config {
namespace {

constexpr size_t kMaxDepth = 16;       // a config needs three
constexpr size_t kMaxNodes = 200'000;  // a list of class names may be long

[[noreturn]] void fail(const std::string& what, const TextPlace& place, const std::string& hint) {
  throw InputError(what, place.text(), hint);
}

TextPlace place_at(const std::string& text, size_t offset, const std::string& file) {
  TextPlace place{file, 1, 1};
  for (size_t i = 0; i < offset; ++i) {
    place.column = text[i] == '\n' ? 1 : place.column + 1;
    place.line += text[i] == '\n';
  }
  return place;
}

// a tab among the blanks that begin a line; a blank line or a comment may hold one
void check_indentation(const std::string& text, const std::string& file) {
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line(text.data() + start, end - start);
    const size_t word = line.find_first_not_of(" \t\r");
    const size_t tab = line.substr(0, word).find('\t');
    if (word < line.size() && tab < word && line[word] != '#')
      fail("the line is indented with a tab", place_at(text, start + tab, file),
           "indent with spaces: YAML does not allow tabs");
    start = end + 1;
  }
}

void check_bytes(const std::string& text, const std::string& file) {
  if (const auto bad = base::invalid_utf8(text))
    fail("the file is not UTF-8 text", place_at(text, *bad, file), "save it as UTF-8");
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F)
      fail(format("the file contains a control character (\\x{:02x})", byte), place_at(text, i, file),
           "remove it");
    // the parser takes it for the end of a line, but not for that of a comment
    if (byte == '\r' && text.substr(i + 1, 1) != "\n")
      fail("the file contains a carriage return without a line feed", place_at(text, i, file),
           "save the file with Unix or Windows line ends");
  }
  check_indentation(text, file);
}

// Copies the parser's tree, within limits: an alias is a copy of what it names, so aliases of aliases can be
// as large as one likes, and an anchor that contains itself has no end.
class Copier {
 public:
  explicit Copier(const std::string& file) : file_(file) {}

  TextPlace place_of(const YAML::Node& node) const {
    return {file_, node.Mark().line + 1, node.Mark().column + 1};
  }

  NodePtr copy(const YAML::Node& from, size_t depth = 0) {
    auto node = std::make_shared<YamlNode>();
    node->place = place_of(from);
    if (++count_ > kMaxNodes)
      fail("the file contains too many values for a config", node->place, "put data into a data file");
    if (const auto& tag = from.Tag(); !tag.empty() && tag != "?" && tag != "!")
      fail(format("the file contains a YAML tag ({})", base::printable(tag)), node->place,
           "remove the tag: configs do not support tags");
    if (from.IsScalar()) {
      node->kind = YamlNode::Kind::scalar;
      node->text = from.Scalar();
      node->quoted = from.Tag() == "!";  // the parser's mark for a scalar that is not plain
    } else if (from.IsSequence() || from.IsMap()) {
      if (depth >= kMaxDepth)
        fail("the file is nested too deeply", node->place, "write sections that contain keys with values");
      node->kind = from.IsMap() ? YamlNode::Kind::map : YamlNode::Kind::list;
      std::map<std::string, TextPlace> names;
      for (const auto& child : from) {
        if (from.IsSequence()) {
          node->items.push_back(copy(child, depth + 1));
        } else {
          const auto name = copy(child.first, depth + 1);
          const auto [first, is_new] = names.emplace(name->text, name->place);
          if (!is_new && name->kind == YamlNode::Kind::scalar)
            fail(format("duplicate key {}", base::printable(name->text)), name->place,
                 format("keep one of them: the other is at {}", first->second.text()));
          node->entries.emplace_back(name, copy(child.second, depth + 1));
        }
      }
    }
    return node;
  }

 private:
  const std::string& file_;
  size_t count_ = 0;
};

}  // namespace

std::string TextPlace::text() const {
  return line > 0 ? format("{}:{}:{}", file, line, column) : file;
}

NodePtr parse_yaml(const std::string& text, const std::string& file) {
  check_bytes(text, file);
  Copier copier(file);
  try {
    const auto documents = YAML::LoadAll(text);
    if (documents.size() > 1)
      fail("the file contains a second document", copier.place_of(documents[1]),
           "use one file per config: remove the '---' between them");
    if (!documents.empty()) return copier.copy(documents[0]);
  } catch (const YAML::Exception& error) {
    fail("the file is not valid YAML: " + error.msg, {file, error.mark.line + 1, error.mark.column + 1},
         "look for a missing colon, quote, bracket or a space after ':'");
  }
  auto nothing = std::make_shared<YamlNode>();
  nothing->place = {file, 1, 1};
  return nothing;
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "no value";
    case YamlNode::Kind::list:
      return format("a list of {}", base::counted(std::ssize(node.items), "item"));
    case YamlNode::Kind::map:
      return "a map of keys";
    case YamlNode::Kind::scalar:
      break;
  }
  if (node.text.empty()) return "an empty value";
  return node.quoted ? format("the text \"{}\"", base::printable(node.text)) : base::printable(node.text);
}

}  // namespace lockstep::config
