// Graphs of torch.export, whole ones and ones that somebody spoilt: each read, or refused in words.
#include "lockstep/exported/program.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>
#include <limits>

#include "refusal.h"

namespace lockstep::exported {
namespace {

constexpr const char* kSeeds = "tests/fuzz/seeds/exported/";

Json seed(const std::string& name) {
  std::ifstream file(kSeeds + name + ".json");
  return Json::parse(file);
}

Json& nodes(Json& model) {
  return model["graph_module"]["graph"]["nodes"];
}

Json& inputs(Json& model, size_t node = 0) {
  return nodes(model)[node]["inputs"];
}

Json named(const char* name, Json argument) {
  return {{"name", name}, {"arg", std::move(argument)}, {"kind", 1}};
}

Json of_kind(const char* kind, Json value) {
  return {{kind, std::move(value)}};
}

Json as_tensor(const char* name) {
  return {{"as_tensor", {{"name", name}}}};
}

// Why it is refused; empty = it is not.
std::string refusal(const std::string& text) {
  try {
    read_program(text, "model.pt2");
    return {};
  } catch (const InputError& error) {
    EXPECT_EQ(error.where(), "model.pt2");
    EXPECT_FALSE(error.hint().empty());
    return error.what();
  }
}

Json nested(int depth) {
  const Json leaf = {{"inputs", Json::array()}, {"outputs", Json::array()}, {"nodes", Json::array()}};
  auto graph = leaf;
  for (int i = 0; i < depth; ++i) {
    auto outer = leaf;
    outer["nodes"].push_back({{"target", "torch.ops.higher_order.wrap"},
                              {"inputs", {named("", {{"as_graph", {{"name", "a"}, {"graph", graph}}}})}},
                              {"outputs", Json::array()}});
    graph = outer;
  }
  return graph;
}

struct Spoilt {
  const char* name;
  const char* words;
  void (*spoil)(Json& model);
};

const Spoilt kSpoilt[] = {
    {"Major", "the graph has schema version 9.20", [](Json& m) { m["schema_version"]["major"] = 9; }},
    {"OldMinor", "the graph has schema version 8.13", [](Json& m) { m["schema_version"]["minor"] = 13; }},
    {"CustomOperator", "is not libtorch's own",
     [](Json& m) { nodes(m)[0]["target"] = "torch.ops.mine.op.default"; }},
    {"PythonFunction", "a Python function that lockstep does not support",
     [](Json& m) { nodes(m)[0]["target"] = "os.system"; }},
    {"ReadsFiles", "is not one that an exported model may call",
     [](Json& m) { nodes(m)[0]["target"] = "torch.ops.aten.from_file.default"; }},
    {"SharesStorage", "is not one that an exported model may call",
     [](Json& m) { nodes(m)[0]["target"] = "torch.ops.aten.set_.source_Tensor"; }},
    {"PrivateOperator", "is not one that an exported model may call",
     [](Json& m) { nodes(m)[0]["target"] = "torch.ops.aten._sparse_coo_tensor_unsafe.default"; }},
    {"HigherOrder", "a higher-order operator that lockstep does not run",
     [](Json& m) { nodes(m)[0]["target"] = "torch.ops.higher_order.while_loop"; }},
    {"Overload", "has no operator torch.ops.aten.conv2d.nope",
     [](Json& m) { nodes(m)[0]["target"] = "torch.ops.aten.conv2d.nope"; }},
    {"NativeOperator", "is not one that an exported model may call",
     [](Json& m) { nodes(m)[0]["target"] = "torch.ops.aten.native_batch_norm.default"; }},
    {"GivenResult", "writes into a tensor that it is given",
     [](Json& m) { nodes(m)[0]["target"] = "torch.ops.aten.abs.out"; }},
    {"NumberForDtype", "its argument dtype has the kind as_int",
     [](Json& m) {
       nodes(m)[0] = {{"target", "torch.ops.aten.zeros.default"},
                      {"inputs", {named("size", {{"as_ints", {1}}}), named("dtype", {{"as_int", -5}})}},
                      {"outputs", {as_tensor("conv2d")}}};
     }},
    {"SparseGradient", "its gradient would be sparse",
     [](Json& m) {
       nodes(m)[0] = {{"target", "torch.ops.aten.embedding.default"},
                      {"inputs",
                       {named("weight", as_tensor("p_0_weight")), named("indices", as_tensor("input")),
                        named("sparse", {{"as_bool", true}})}},
                      {"outputs", {as_tensor("conv2d")}}};
     }},
    {"HugeWhole", "a value of the graph is not a whole number",
     [](Json& m) {
       inputs(m).push_back(named("groups", of_kind("as_int", std::numeric_limits<uint64_t>::max())));
     }},
    {"OutputOfNoKind", "",
     [](Json& m) {
       m["graph_module"]["signature"]["output_specs"][0] = {{"user_output", {{"arg", {{"a", 1}}}}}};
     }},
    {"UnknownArgument", "it takes no argument nope",
     [](Json& m) { inputs(m).push_back(named("nope", of_kind("as_int", 1))); }},
    {"MissingArgument", "it lacks the argument input", [](Json& m) { inputs(m).erase(0); }},
    {"TextForTensor", "its argument input has the kind as_string, but must be Tensor",
     [](Json& m) { inputs(m)[0]["arg"] = of_kind("as_string", "hello"); }},
    {"NumbersForTensor", "its argument weight has the kind as_ints",
     [](Json& m) {
       inputs(m)[1]["arg"] = of_kind("as_ints", {1, 2});
     }},
    {"TensorForNumbers", "its argument stride has the kind as_tensor",
     [](Json& m) { inputs(m).push_back(named("stride", as_tensor("input"))); }},
    {"FractionForWhole", "its argument groups has the kind as_float",
     [](Json& m) { inputs(m).push_back(named("groups", of_kind("as_float", 1.5))); }},
    {"FractionAsWhole", "a value of the graph is not a whole number",
     [](Json& m) { inputs(m).push_back(named("groups", of_kind("as_int", 1.5))); }},
    {"TextForDevice", "device toaster is not supported",
     [](Json& m) { inputs(m).push_back(named("groups", of_kind("as_device", of_kind("type", "toaster")))); }},
    {"UnknownKind", "an argument of the kind as_dream cannot be read",
     [](Json& m) { inputs(m)[0]["arg"] = of_kind("as_dream", 1); }},
    {"TwoKinds", "has two kinds", [](Json& m) { inputs(m)[0]["arg"]["as_int"] = 1; }},
    {"NoKind", "is empty", [](Json& m) { inputs(m)[0]["arg"] = Json::object(); }},
    {"ValueOfNothing", "the graph uses nope before it is computed",
     [](Json& m) { inputs(m)[0]["arg"] = as_tensor("nope"); }},
    {"UsedBefore", "before it is computed", [](Json& m) { std::reverse(nodes(m).begin(), nodes(m).end()); }},
    {"GivenTwice", "two values of the graph have the name",
     [](Json& m) { nodes(m)[1]["outputs"] = nodes(m)[0]["outputs"]; }},
    {"TooManyResults", "it does not return what the graph expects",
     [](Json& m) { nodes(m)[0]["outputs"].push_back(as_tensor("another")); }},
    {"NodesAreNoList", "the graph has no list of nodes", [](Json& m) { nodes(m) = of_kind("a", 1); }},
    {"NoGraph", "does not have torch.export's format", [](Json& m) { m["graph_module"] = nullptr; }},
    {"NoSignature", "does not have torch.export's format",
     [](Json& m) { m["graph_module"].erase("signature"); }},
    {"OtherSignature", "its signature belongs to another graph",
     [](Json& m) { m["graph_module"]["signature"]["input_specs"].erase(0); }},
    {"CustomObject", "takes an input of the kind custom_obj",
     [](Json& m) {
       m["graph_module"]["signature"]["input_specs"][0] = {{"custom_obj", {{"arg", {{"name", "a"}}}}}};
     }},
    {"Gradients", "an output of the kind gradient_to_parameter",
     [](Json& m) {
       m["graph_module"]["signature"]["output_specs"][0] = {
           {"gradient_to_parameter", {{"arg", {{"name", "a"}}}}}};
     }},
    {"DeepGraphs", "nested too deeply", [](Json& m) { nodes(m) = nested(9)["nodes"]; }},
};

TEST(ExportedGraph, ThatIsSpoiltIsRefusedInWords) {
  for (const auto& [name, words, spoil] : kSpoilt) {
    SCOPED_TRACE(name);
    auto model = seed("cnn_bn_dropout");
    spoil(model);
    const auto why = refusal(model.dump());
    EXPECT_TRUE(test::has(why, words));
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  }
}

TEST(ExportedGraph, ThatIsNoJsonOrTooDeepIsRefused) {
  EXPECT_NE(refusal("hello"), "");
  EXPECT_NE(refusal(std::string(3'000'000, '[')), "");
  EXPECT_NE(refusal("{}"), "");
}

TEST(ExportedGraph, SaysWhichNodeIsRefusedAndWhereInPythonItIs) {
  auto model = seed("cnn_bn_dropout");
  nodes(model)[0]["target"] = "torch.ops.mine.op.default";
  EXPECT_TRUE(test::has(refusal(model.dump()), "(the node torch.ops.mine.op.default, model.py:12)"));
}

TEST(ExportedGraph, NamesFromTheFileReachNoTerminal) {
  auto model = seed("cnn_bn_dropout");
  nodes(model)[0]["target"] = "torch.ops.mine.\x1b[31mop.default";
  EXPECT_EQ(refusal(model.dump()).find('\x1b'), std::string::npos);
}

TEST(ExportedGraph, OfANewerMinorFormIsTried) {
  auto model = seed("cond");
  EXPECT_FALSE(read_program(model.dump(), "model.pt2").is_newer);
  model["schema_version"]["minor"] = 99;
  EXPECT_TRUE(read_program(model.dump(), "model.pt2").is_newer);
}

TEST(ExportedGraph, FreesEachValueAfterItsLastUse) {
  const auto program = read_program(seed("cnn_bn_dropout").dump(), "model.pt2");
  std::vector<int> freed(program.graph.slots.size());
  for (const auto& node : program.graph.nodes)
    for (const int slot : node.done) ++freed[static_cast<size_t>(slot)];
  const auto kept = program.graph.outputs.at(0).slot;
  for (size_t slot = 0; slot < freed.size(); ++slot)
    EXPECT_EQ(freed[slot], static_cast<int>(slot) == kept ? 0 : 1) << slot;
}

TEST(ExportedGraph, KnowsWhatEvalModeChanges) {
  const auto program = read_program(seed("cnn_bn_dropout").dump(), "model.pt2");
  std::map<std::string, int> changed;
  for (const auto& node : program.graph.nodes)
    if (node.op && (node.only_in_training || !node.eval_arguments.empty()))
      ++changed[node.op->schema().name()];
  const std::map<std::string, int> wanted = {
      {"aten::add_", 2}, {"aten::batch_norm", 2}, {"aten::dropout", 1}, {"aten::feature_dropout", 1}};
  EXPECT_EQ(changed, wanted);
}

TEST(ExportedGraph, TakesSizesOf0And1ThatTheFileRulesOut) {
  const auto program = read_program(seed("cond").dump(), "model.pt2");
  ASSERT_EQ(program.signature.ranges.size(), 1U);
  EXPECT_EQ(program.signature.ranges.begin()->second.least, 0);
}

Signature two_inputs_of(const std::string& first, const std::string& second) {
  const auto input = [](const char* name, const std::string& symbol) {
    return Input{.kind = Input::Kind::user,
                 .name = name,
                 .argument = name,
                 .meta = TensorMeta{.dtype = at::kFloat, .sizes = {std::nullopt}, .symbols = {symbol}}};
  };
  return {.inputs = {input("a", first), input("b", second)},
          .outputs = {},
          .given = {0, 1},
          .ranges = {{"s0", {0, 8}}, {"s1", {0, 8}}}};
}

std::string why_not(const Signature& signature, int64_t first, int64_t second) {
  return test::error_of([&] {
    check_inputs(signature, {at::zeros({first}), at::zeros({second})}, "model.pt2");
  });
}

TEST(ExportedSignature, OneNameOfASizeIsOneSize) {
  EXPECT_EQ(why_not(two_inputs_of("s0", "s0"), 3, 3), "");
  EXPECT_EQ(why_not(two_inputs_of("s0", "s0"), 3, 4),
            "the input b has size 4 in dimension 0, but the model was exported with this size equal to "
            "another, which is 3");
  EXPECT_EQ(why_not(two_inputs_of("s0", "s1"), 3, 4), "");
  EXPECT_EQ(why_not(two_inputs_of("s0", "2*s0"), 3, 6), "") << "an expression is the graph's own matter";
  EXPECT_EQ(why_not(two_inputs_of("s0", "s1"), 3, 9),
            "the input b has size 9 in dimension 0, but the model was exported for 0 to 8");
}

}  // namespace
}  // namespace lockstep::exported
