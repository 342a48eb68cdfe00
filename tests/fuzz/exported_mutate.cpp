#include "fuzz/exported_mutate.h"

#include <cstdint>
#include <map>
#include <span>

#include "fuzz/exported_calls.h"
#include "fuzz/mutate.h"
#include "lockstep/checkpoint/archive_writer.h"
#include "lockstep/checkpoint/zip.h"

namespace lockstep::fuzz {
namespace {

using Records = std::map<std::string, std::string>;

constexpr const char* kModel = "models/model.json";
constexpr const char* kConfigs[] = {"data/weights/model_weights_config.json",
                                    "data/constants/model_constants_config.json"};

Records take_apart(const std::string& archive) {
  Records records;
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(archive.data()), archive.size());
  for (const auto& record : checkpoint::read_zip(bytes, "a seed").records)
    records[record.name.substr(record.name.find('/') + 1)].assign(record.data.begin(), record.data.end());
  return records;
}

std::string put_together(const Records& records) {
  std::string archive;
  const auto add = [&](const void* data, size_t size) {
    archive.append(static_cast<const char*>(data), size);
  };
  checkpoint::write_archive(add, [&](auto& writer) {
    for (const auto& [name, text] : records) writer.writeRecord(name, text.data(), text.size());
  });
  return archive;
}

template <class Wanted>
void collect(Json& json, Wanted wanted, std::vector<Json*>& found) {
  if (wanted(json)) found.push_back(&json);
  if (!json.is_structured()) return;
  for (auto& item : json.items())
    if (item.key() != "metadata") collect(item.value(), wanted, found);
}

bool is_number(const Json& json) {
  return json.is_number();
}
bool is_truth(const Json& json) {
  return json.is_boolean();
}
// {"as_int": 1}
bool is_value(const Json& json) {
  return json.is_object() && json.size() == 1 && json.begin().key().starts_with("as_");
}
bool is_tensor(const Json& json) {
  return is_value(json) && json.contains("as_tensor");
}
bool is_graph(const Json& json) {
  return json.is_object() && json.contains("nodes") && json["nodes"].is_array();
}

/// Changes one model's JSON.
class GraphMutation {
 public:
  GraphMutation(Json& model, std::mt19937& random) : model_(model), random_(random) {}

  void change() {
    static const std::vector<void (GraphMutation::*)()> ways = {
        &GraphMutation::set_number,     &GraphMutation::set_truth,    &GraphMutation::set_value,
        &GraphMutation::set_any_number, &GraphMutation::set_operator, &GraphMutation::drop_node,
        &GraphMutation::double_node,    &GraphMutation::move_node,    &GraphMutation::replace_call,
        &GraphMutation::insert_call,    &GraphMutation::insert_call,  &GraphMutation::insert_call,
        &GraphMutation::insert_call,    &GraphMutation::insert_call,  &GraphMutation::insert_call,
        &GraphMutation::set_output};
    (this->*ways[draw(ways.size())])();
  }

 private:
  size_t draw(size_t n) { return below(n, random_); }

  template <class Wanted>
  Json* one_below(Json& json, Wanted wanted) {
    std::vector<Json*> found;
    collect(json, wanted, found);
    return found.empty() ? nullptr : found[draw(found.size())];
  }

  Json& graph() {
    auto* found = one_below(model_["graph_module"], is_graph);
    return found ? *found : model_["graph_module"]["graph"];
  }
  Json& nodes() { return graph()["nodes"]; }
  Json* node() {
    auto& all = nodes();
    return all.empty() ? nullptr : &all[draw(all.size())];
  }

  void set_to_some(Json& number) {
    number = number.is_number_float() ? some_real(random_) : Json(some_integer(random_));
  }
  void set_number() {
    auto* in = node();
    if (auto* number = in ? one_below((*in)["inputs"], is_number) : nullptr) set_to_some(*number);
  }
  void set_any_number() {
    if (auto* number = one_below(model_, is_number)) set_to_some(*number);
  }
  void set_truth() {
    if (auto* truth = one_below(model_, is_truth)) *truth = !truth->get<bool>();
  }
  /// An argument becomes another one, of whatever kind.
  void set_value() {
    auto* in = node();
    auto* to = in ? one_below((*in)["inputs"], is_value) : nullptr;
    auto* from = one_below(nodes(), is_value);
    if (to && from && to != from) *to = Json(*from);
  }
  void set_operator() {
    if (auto* in = node()) (*in)["target"] = some_operator(random_);
  }
  void drop_node() {
    auto& all = nodes();
    if (!all.empty()) all.erase(draw(all.size()));
  }
  void double_node() {
    auto& all = nodes();
    if (all.empty()) return;
    auto copy = all[draw(all.size())];
    std::vector<Json*> results;
    collect(copy["outputs"], is_tensor, results);
    for (auto* result : results) (*result)["as_tensor"]["name"] = fresh_name();
    insert(all, draw(all.size() + 1), std::move(copy));
  }
  void move_node() {
    auto& all = nodes();
    if (all.empty()) return;
    const auto from = draw(all.size());
    auto moved = all[from];
    all.erase(from);
    insert(all, draw(all.size() + 1), std::move(moved));
  }
  void replace_call() {
    auto& in = graph();
    auto& all = in["nodes"];
    if (all.empty()) return;
    const auto at = draw(all.size());
    auto call = some_call(names_before(in, at), fresh_name(), random_);
    for (size_t i = 0; i < std::min(call["outputs"].size(), all[at]["outputs"].size()); ++i)
      call["outputs"][i] = all[at]["outputs"][i];
    all[at] = std::move(call);
  }
  /// And mostly what comes later takes its result.
  void insert_call() {
    auto& in = graph();
    auto& all = in["nodes"];
    const auto at = draw(all.size() + 1);
    auto call = some_call(names_before(in, at), fresh_name(), random_);
    const auto* result = one_below(call["outputs"], is_tensor);
    const auto value = result ? *result : Json();
    insert(all, at, std::move(call));
    if (value.is_null()) return;
    auto* user = at + 1 < all.size() && draw(2)
                     ? one_below(all[at + 1 + draw(all.size() - at - 1)]["inputs"], is_tensor)
                     : one_below(in["outputs"], is_tensor);
    if (user && draw(8)) *user = value;
  }
  void set_output() {
    auto& in = graph();
    const auto names = names_before(in, in["nodes"].size());
    auto* output = one_below(in["outputs"], is_tensor);
    if (output && !names.empty()) (*output)["as_tensor"]["name"] = names[draw(names.size())];
  }

  std::string fresh_name() { return "made_" + std::to_string(random_()); }

  static void insert(Json& list, size_t at, Json value) {
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), std::move(value));
  }

  /// Of tensors that the graph has when the node with this number comes.
  static std::vector<std::string> names_before(Json& graph, size_t number) {
    std::vector<Json*> found;
    collect(graph["inputs"], is_tensor, found);
    for (size_t i = 0; i < number; ++i) collect(graph["nodes"][i]["outputs"], is_tensor, found);
    std::vector<std::string> names;
    for (const auto* value : found) names.push_back((*value)["as_tensor"].value("name", std::string()));
    return names;
  }

  Json& model_;
  std::mt19937& random_;
};

void change_graph(Records& records, std::mt19937& random) {
  auto model = Json::parse(records.at(kModel));
  for (auto left = 1 + below(4, random); left > 0; --left) GraphMutation(model, random).change();
  records[kModel] = model.dump();
}

// Where a tensor lies, of which dtype and shape it is.
void change_config(Records& records, std::mt19937& random) {
  const auto found = records.find(kConfigs[below(std::size(kConfigs), random)]);
  if (found == records.end()) return;
  auto config = Json::parse(found->second);
  std::vector<Json*> numbers, truths;
  collect(config, is_number, numbers);
  collect(config, is_truth, truths);
  if (!numbers.empty()) *numbers[below(numbers.size(), random)] = some_integer(random);
  if (!truths.empty() && below(4, random) == 0) {
    auto& truth = *truths[below(truths.size(), random)];
    truth = !truth.get<bool>();
  }
  found->second = config.dump();
}

void change_numbers(Records& records, std::mt19937& random) {
  std::vector<std::string*> weights;
  for (auto& [name, text] : records)
    if (name.starts_with("data/") && !name.ends_with(".json") && !text.empty()) weights.push_back(&text);
  if (weights.empty()) return;
  auto& text = *weights[below(weights.size(), random)];
  for (auto left = 1 + below(8, random); left > 0; --left)
    text[below(text.size(), random)] = static_cast<char>(random());
}

}  // namespace

std::string mutated_exported(const std::vector<std::string>& seeds, std::mt19937& random) {
  constexpr size_t kOfBytes = 32, kOfConfigs = 16, kOfNumbers = 8;  // one in so many
  if (below(kOfBytes, random) == 0) return mutated(seeds, random);
  auto records = take_apart(seeds[below(seeds.size(), random)]);
  if (below(kOfConfigs, random) == 0)
    change_config(records, random);
  else
    change_graph(records, random);
  if (below(kOfNumbers, random) == 0) change_numbers(records, random);
  return put_together(records);
}

}  // namespace lockstep::fuzz
