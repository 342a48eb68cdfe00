// A program's checkpoints: saved inside an epoch, loaded into another model, to the same bits.
#include "lockstep/checkpoint/collective/save.h"

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/table_set.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/zero/sharded_optimizer.h"
#include "ranks.h"
#include "refusal.h"

namespace lockstep {
namespace {

struct DropoutNet : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(4, 3))};
  torch::nn::Dropout drop{register_module("drop", torch::nn::Dropout(0.5))};
  at::Tensor forward(const at::Tensor& x) { return drop(fc(x)); }
};

using MakeHook = std::function<CommHook(const ProcessGroup&)>;

// A training of its own, from the same first values.
struct Training {
  explicit Training(const Session& session, const MakeHook& hook = {}, const char* hook_name = "hook")
      : model((torch::manual_seed(session.rank()), ddp(DropoutNet(), session))),
        optimizer(model->parameters(), {.lr = 0.1, .momentum = 0.9}),
        sampler(48, session),
        set(at::arange(48 * 4, at::kFloat).reshape({48, 4}) / 100, at::Tensor()) {
    if (hook) model->register_comm_hook(hook(session.group()), hook_name);
  }

  CheckpointParts parts(int64_t samples = 0) {
    return {.model = model,
            .optimizer = &optimizer,
            .sampler = &sampler,
            .samples = samples,
            .more = make_dict({{"best", 0.5}})};
  }
  // The rest of the epoch, or `most` batches of it.
  void run(int64_t most = 1000) {
    auto batches = loader(set, sampler, {.batch_size = 4});
    for (auto& [x, y] : batches) {
      if (most-- == 0) return;
      optimizer.zero_grad();
      model->forward(x).square().mean().backward();
      optimizer.step();
    }
  }

  std::shared_ptr<DistributedDataParallel<DropoutNet>> model;
  Sgd optimizer;
  DistributedSampler sampler;
  TableSet set;
};

// A hook with an error memory of its own, which the next step's gradients feel.
CommHook remembering(const ProcessGroup& group) {
  const auto memory = std::make_shared<at::Tensor>();
  const auto call = [group, memory](GradBucket& bucket) {
    if (memory->defined()) bucket.buffer().add_(*memory, 0.5);
    *memory = bucket.buffer().clone();
    return hooks::all_reduce(group, bucket.buffer());
  };
  return {call, HookMemory{.state =
                               [memory] {
                                 return HookState{{"last", *memory}};
                               },
                           .load = [memory](const HookState& state) { *memory = state.at("last").clone(); }}};
}

CommHook without_a_word(const ProcessGroup& group) {
  return [group](GradBucket& bucket) { return hooks::all_reduce(group, bucket.buffer()); };
}

std::string said_by_load(const std::string& path, const Session& session, Training& training) {
  testing::internal::CaptureStderr();
  load(path, session, training.parts());
  return testing::internal::GetCapturedStderr();
}

void check_hook_goes_on(const std::string& path, const Session& session, const MakeHook& hook) {
  Training uncut(session, hook);
  uncut.sampler.set_epoch(3);
  uncut.run();
  Training cut(session, hook);
  cut.sampler.set_epoch(3);
  cut.run(4);
  save(path, session, cut.parts(/*samples=*/16));
  Training again(session, hook);
  load(path, session, again.parts());
  save(path, session, again.parts());  // at once: what no step has taken yet is in it, too
  Training last(session, hook);
  load(path, session, last.parts());
  last.run();
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(at::equal(last.model->parameters()[i], uncut.model->parameters()[i]));
}

void check_hooks(const std::string& path, const Session& session) {
  check_hook_goes_on(path, session, remembering);
  const auto only_rank_0_speaks = session.rank() == 0;
  Training another(session, remembering, "another");
  const auto other = said_by_load(path, session, another);
  EXPECT_EQ(other.find("the checkpoint has the state of hook") != std::string::npos, only_rank_0_speaks)
      << other;
  Training unsaid(session, without_a_word);
  const auto silent = said_by_load(path, session, unsaid);
  EXPECT_EQ(silent.find("does not declare its state") != std::string::npos, only_rank_0_speaks) << silent;
  check_hook_goes_on(path, session, [](const ProcessGroup& group) {
    return hooks::fp16_compress_wrapper(hooks::powersgd(
        group, {.matrix_approximation_rank = 1, .start_powerSGD_iter = 2, .min_compression_rate = 1}));
  });
}

std::string message_of(const std::function<void()>& work) {
  return describe(test::error_from(work));
}

// All in one test: a process joins its job once.
TEST(Save, TakesUpInsideAnEpochToTheSameBits) {
  const Session session({.backend = "gloo", .device = "cpu"});
  const auto folder = session.team().from_first([] {
    auto name = (std::filesystem::temp_directory_path() / "lockstep-save-XXXXXX").string();
    return std::string(::mkdtemp(name.data()));
  });
  const auto path = folder + "/run.pt";

  Training uncut(session);
  uncut.sampler.set_epoch(3);
  uncut.run();
  Training whole(session);
  whole.sampler.set_epoch(3);
  EXPECT_FALSE(load_if_there(path, session, whole.parts()));
  whole.run(2);
  save(path, session, whole.parts(/*samples=*/8));

  Training other(session);
  const auto more = load(path, session, other.parts());
  EXPECT_EQ(as_double(get(more, "best"), "best"), 0.5);
  EXPECT_EQ(other.sampler.epoch(), 3);
  EXPECT_EQ(other.sampler.num_samples(), 48 / session.world() - 8);

  Training again(session);
  EXPECT_TRUE(load_if_there(path, session, again.parts()));
  again.run();
  EXPECT_EQ(again.model->parameters().size(), 2);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(at::equal(again.model->parameters()[i], uncut.model->parameters()[i]));

  // an optimizer that the ranks share takes the plain one's state, and leaves a plain one
  Training shared(session);
  const auto sgd = sharded<Sgd>(shared.model->parameters(), session, {.lr = 0.1, .momentum = 0.9});
  auto parts = shared.parts();
  parts.optimizer = sgd.get();
  load(path, session, parts);
  parts.samples = 0;
  save(folder + "/shared.pt", session, parts);
  Training plain(session);
  load(folder + "/shared.pt", session, plain.parts());
  plain.run();
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(at::equal(plain.model->parameters()[i], uncut.model->parameters()[i]));

  // another part, another model, a file that is not there: refused by all alike, and the old file stays
  const auto without = path + "2";
  save(without, session, {.model = whole.model});
  EXPECT_TRUE(test::has(message_of([&] { load(without, session, other.parts()); }), "no \"optimizer\""));
  // whatever wraps the model, the file is the bare one's
  const auto wrapped =
      data_parallel(DropoutNet(), {at::kCPU, at::kCPU}, [] { return std::make_shared<DropoutNet>(); });
  const auto bare = std::make_shared<DropoutNet>();
  const auto back = ddp(DropoutNet(), session);
  load(without, session, {.model = wrapped});
  save(without, session, {.model = wrapped});
  load(without, session, {.model = bare});
  save(without, session, {.model = bare});
  load(without, session, {.model = back});
  EXPECT_TRUE(at::equal(bare->fc->weight, whole.model->module()->fc->weight));
  EXPECT_TRUE(at::equal(back->module()->fc->weight, whole.model->module()->fc->weight));
  torch::nn::Linear wider(7, 7);
  const auto mismatch = message_of([&] { load(path, session, {.model = wider}); });
  EXPECT_TRUE(test::has(mismatch, path));
  for (const auto& one : session.team().all_gather(mismatch)) EXPECT_EQ(one, mismatch);
  EXPECT_TRUE(test::has(message_of([&] { save(folder + "/missing/a.pt", session, whole.parts()); }),
                        "the folder for the checkpoint does not exist"));
  EXPECT_TRUE(test::has(message_of([&] { load(folder + "/none.pt", session, whole.parts()); }), "none.pt"));

  // of a lockstep to come, a program's or the trainer's
  for (const char* key : {"session", "lockstep"}) {
    const auto newer = folder + format("/{}.pt", key);
    session.team().from_first([&] {
      write_pt(newer, snapshot(make_dict({{key, make_dict({{"format", int64_t{99}}})}})));
      return std::string();
    });
    EXPECT_TRUE(test::has(message_of([&] { load(newer, session, other.parts()); }),
                          "has format 99, but this lockstep reads"));
  }

  check_hooks(folder + "/hook.pt", session);

  session.team().barrier();
  if (session.rank() == 0) std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
