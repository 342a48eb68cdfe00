// The rows that this room's tests choose: the real ones stand in rooms that config does not know.

#include "lockstep/base/plugins/tables.h"

namespace lockstep::test {
namespace {

template <class Kind>
void fill(void* into) {
  static_cast<TableRow*>(into)->facts = Kind::facts();
}

#define ROW(KIND, NAME, ...)                                                 \
  struct NAME##_row {                                                        \
    static RowFacts facts() { return RowFacts{.help = #NAME, __VA_ARGS__}; } \
  };                                                                         \
  const bool NAME##_is_there = (lockstep_add_row("tests", KIND, #NAME, fill<NAME##_row>), true);

ROW("optimizer", sgd, .reads = {"momentum", "weight_decay", "nesterov", "no_decay"})
ROW("optimizer", adam, .reads = {"weight_decay", "betas", "eps", "no_decay"})
ROW("optimizer", adamw, .reads = {"weight_decay", "betas", "eps", "no_decay"},
    .defaults = {{"optim.weight_decay", "0.01"}})
ROW("schedule", own, .reads = {"options.rho"})
ROW("schedule", none)
ROW("schedule", step, .reads = {"step_size", "gamma"})
ROW("schedule", cosine, .reads = {"T_max", "eta_min"})
ROW("schedule", warmup, .reads = {"start_factor", "end_factor", "total_iters"})
ROW("schedule", linear_warmup, .reads = {"warmup_steps", "total_steps"})
ROW("schedule", plateau, .reads = {"mode", "factor", "patience"})
ROW("schedule", one_cycle, .reads = {"max_lr", "total_steps", "base_momentum", "max_momentum"},
    .needs = {{"max_lr", "set schedule.max_lr, ten times optim.lr say"}})
ROW("task", mnist, .defaults = {{"model.name", "simple_cnn"}})
ROW("task", pima, .reads = {"eval_fraction"}, .defaults = {{"model.name", "pima_net"}})
ROW("task", idx, .reads = {"images", "labels", "classes", "normalize", "mean", "std"},
    .defaults = {{"model.name", "mlp"}})
ROW("task", csv,
    .reads = {"kind", "file", "eval_file", "delimiter", "label", "features", "header", "eval_fraction",
              "classes", "normalize", "mean", "std", "normalize_label", "ignore", "missing"},
    .defaults = {{"model.name", "mlp"}})
ROW("task", folder, .reads = {"size", "augment", "damaged", "eval_fraction", "normalize", "mean", "std"},
    .needs = {{"size", "set task.size to rows and columns: [224, 224]"}},
    .defaults = {{"model.name", "resnet18"}})
ROW("task", text,
    .reads = {"kind", "file", "eval_file", "delimiter", "text", "label", "header", "eval_fraction", "classes",
              "normalize_label", "vocabulary", "max_length", "cache"},
    .defaults = {{"model.name", "bert"}})
ROW("task", mnli, .reads = {"vocabulary", "max_length", "cache"}, .defaults = {{"model.name", "bert"}})
ROW("task", cartpole, .reads = {"options.method", "options.environments", "options.steps", "options.passes"},
    .defaults = {{"model.name", "mlp"}})
ROW("task", open, .reads = {"*"})
ROW("model", mlp, .reads = {"hidden"})
ROW("model", simple_cnn)
ROW("model", pima_net)
ROW("model", pima_net_branch)
ROW("model", two_stage, .reads = {"devices", "hidden"})
ROW("model", bert_layer,
    .reads = {"options.width", "options.heads", "options.intermediate", "options.dropout"})
ROW("model", bert,
    .reads = {"path", "options.vocab_size", "options.hidden_size", "options.num_hidden_layers",
              "options.num_attention_heads", "options.intermediate_size"})
ROW("model", resnet18, .reads = {"path"})
ROW("model", torchscript, .reads = {"path"},
    .needs = {{"path", "set model.path to the file that torch.jit.save wrote"}})
const bool kNoHookIsThere =
    (lockstep_add_row("tests", "comm hook", "none",
                      [](void* row) { static_cast<TableRow*>(row)->facts.help = "none"; }),
     true);
ROW("comm hook", bf16)
ROW("comm hook", powersgd)
#undef ROW

}  // namespace
}  // namespace lockstep::test
