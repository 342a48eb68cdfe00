#include "trainer/config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <sstream>
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
    if (word < line.size() && tab < word && line[word] != '#') {
      fail("a tab in the indentation", place_at(text, start + tab, file),
           "indent with spaces: YAML takes no tabs there");
    }
    start = end + 1;
  }
}

void check_bytes(const std::string& text, const std::string& file) {
  if (const auto bad = base::invalid_utf8(text)) {
    fail("the file is not UTF-8 text", place_at(text, *bad, file), "save it as UTF-8");
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F) {
      fail(format("a control character (\\x{:02x}) in the text", byte), place_at(text, i, file), "remove it");
    }
    // the parser takes it for the end of a line, but not for that of a comment
    if (byte == '\r' && text.substr(i + 1, 1) != "\n")
      fail("a carriage return without a line feed", place_at(text, i, file),
           "save the file with Unix or Windows line ends");
  }
  check_indentation(text, file);
}

// Builds the tree from the parser's events. An alias shares its anchor's node, so a bomb of aliases costs
// nothing, and an anchor that is still open when it is named would be a cycle.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const std::string& file) : file_(file) {
    auto nothing = std::make_shared<YamlNode>();
    nothing->place = {file, 1, 1};
    root = nothing;
  }

  NodePtr root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { put(make(mark), anchor); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end()) fail("an anchor that contains itself", place(mark), "write the value out");
    auto copy = std::make_shared<YamlNode>(*known->second);  // one level: its children stay shared
    copy->place = place(mark);
    put(copy, 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tag(tag, mark);
    auto node = make(mark);
    node->kind = YamlNode::Kind::scalar;
    node->text = value;
    node->quoted = tag == "!";  // the parser's mark for a scalar that is not plain
    put(node, anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    std::shared_ptr<YamlNode> node;
    YAML::anchor_t anchor;
    NodePtr key;  // a map's key that waits for its value
  };

  TextPlace place(const YAML::Mark& mark) const { return {file_, mark.line + 1, mark.column + 1}; }

  std::shared_ptr<YamlNode> make(const YAML::Mark& mark) {
    if (++count_ > kMaxNodes) fail("too many values for a config", place(mark), "put data into a data file");
    auto node = std::make_shared<YamlNode>();
    node->place = place(mark);
    return node;
  }

  void refuse_tag(const std::string& tag, const YAML::Mark& mark) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    fail(format("a YAML tag ({})", base::printable(tag)), place(mark),
         "configs have no tags: write the value alone");
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_tag(tag, mark);
    // thrown from inside the parser's recursion, so that a nesting bomb never gets deep
    if (open_.size() >= kMaxDepth)
      fail("nested too deeply", place(mark), "a config is sections of keys with values");
    auto node = make(mark);
    node->kind = kind;
    open_.push_back({node, anchor, nullptr});
  }

  void close() {
    const Open done = open_.back();
    open_.pop_back();
    put(done.node, done.anchor);
  }

  void put(const NodePtr& node, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root = node;
    } else if (Open& parent = open_.back(); parent.node->kind == YamlNode::Kind::list) {
      parent.node->items.push_back(node);
    } else if (!parent.key) {
      parent.key = node;
    } else {
      parent.node->entries.emplace_back(std::exchange(parent.key, nullptr), node);
    }
  }

  std::string file_;
  size_t count_ = 0;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, NodePtr> anchors_;
};

NodePtr parse_document(std::istream& stream, const std::string& file) {
  YAML::Parser parser(stream);
  Builder builder(file);
  if (!parser.HandleNextDocument(builder)) return builder.root;
  Builder second(file);
  if (parser.HandleNextDocument(second)) {
    fail("a second document in the file", second.root->place,
         "one config a file: remove the '---' between them");
  }
  return builder.root;
}

}  // namespace

std::string TextPlace::text() const {
  return line > 0 ? format("{}:{}:{}", file, line, column) : file;
}

NodePtr parse_yaml(const std::string& text, const std::string& file) {
  check_bytes(text, file);
  std::istringstream stream(text);
  try {
    return parse_document(stream, file);
  } catch (const YAML::Exception& error) {
    fail("not valid YAML: " + error.msg, {file, error.mark.line + 1, error.mark.column + 1},
         "look for a missing colon, quote, bracket or a space after ':'");
  }
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::list:
      return format("a list of {}", node.items.size());
    case YamlNode::Kind::map:
      return "a map of keys";
    case YamlNode::Kind::scalar:
      break;
  }
  return node.quoted ? format("the text \"{}\"", base::printable(node.text)) : base::printable(node.text);
}

}  // namespace lockstep::config
