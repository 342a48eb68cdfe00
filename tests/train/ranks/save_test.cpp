// A program's checkpoints: saved inside an epoch, loaded into another model, to the same bits.
#include "lockstep/train/save.h"

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/table_set.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/zero/sharded_optimizer.h"
#include "ranks.h"

namespace lockstep {
namespace {

struct DropoutNet : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(4, 3))};
  torch::nn::Dropout drop{register_module("drop", torch::nn::Dropout(0.5))};
  at::Tensor forward(const at::Tensor& x) { return drop(fc(x)); }
};

// A training of its own, from the same first values.
struct Training {
  explicit Training(const Session& session)
      : model((torch::manual_seed(session.rank()), ddp(DropoutNet(), session))),
        optimizer(model->parameters(), {.lr = 0.1, .momentum = 0.9}),
        sampler(48, session),
        set(at::arange(48 * 4, at::kFloat).reshape({48, 4}) / 100, at::Tensor()) {}

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

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& error) {
    return describe(error);
  }
  return "nothing was refused";
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

  // an optimiser that the ranks share takes the plain one's state, and leaves a plain one
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
  EXPECT_NE(message_of([&] { load(without, session, other.parts()); }).find("no \"optimizer\""),
            std::string::npos);
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
  EXPECT_NE(mismatch.find(path), std::string::npos) << mismatch;
  for (const auto& one : session.team().all_gather(mismatch)) EXPECT_EQ(one, mismatch);
  EXPECT_NE(message_of([&] { save(folder + "/missing/a.pt", session, whole.parts()); }).find("no folder"),
            std::string::npos);
  EXPECT_NE(message_of([&] { load(folder + "/none.pt", session, whole.parts()); }).find("none.pt"),
            std::string::npos);

  session.team().barrier();
  if (session.rank() == 0) std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
