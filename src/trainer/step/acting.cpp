// The samples of a task that acts.
#include "trainer/step/feed.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/tasks/cart_pole.h"
#include "trainer/modes/model.h"
#include "trainer/step/evaluate.h"
#include "trainer/step/step.h"

namespace lockstep::train {
namespace {

constexpr int64_t kPlayed = 100;                 // episodes of an evaluation
constexpr int64_t kTogether = 10;                // in one forward: the same ones at any number of ranks
constexpr uint64_t kOrders = uint64_t{1} << 62;  // streams of the ranks' orders, beyond those of actors

Policy policy_of(Net& net, const Setup& setup) {
  return [&net, &settings = setup.settings, device = setup.team->device()](const at::Tensor& observations) {
    const torch::NoGradGuard no_grad;
    const Autocast scope(device.type(), settings.train.precision);
    return net.forward(placed(net, observations, device, settings.train.layout))
        .to(torch::kCPU, torch::kFloat32);
  };
}

// Every rank's, in the order in which they ended.
std::vector<double> rewards_of_all(const Team& team, const std::vector<Episode>& own) {
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(Episode));
  std::multimap<int64_t, double> all;  // by step; of one step, in the order of the ranks
  for (const auto& text : team.all_gather(bytes)) {
    if (text.empty()) continue;
    std::vector<Episode> episodes(text.size() / sizeof(Episode));
    std::memcpy(episodes.data(), text.data(), text.size());
    for (const auto& one : episodes) all.emplace(one.step, one.reward);
  }
  std::vector<double> rewards;
  for (const auto& [step, reward] : all) rewards.push_back(reward);
  return rewards;
}

Tree gathered(const Team& team, const std::vector<at::Tensor>& tensors) {
  const auto list = make_list();
  for (const auto& tensor : tensors) append(list, torch::stack(team.all_gather(tensor)));
  return list;
}

// This rank's of what gathered() gave; none where it was gathered by others.
std::optional<std::vector<at::Tensor>> own_of(const Team& team, const Tree& list) {
  std::vector<at::Tensor> own;
  for (const auto& each : elements(list)) {
    const auto tensor = as_tensor(each, "lockstep.acting");
    if (tensor.dim() == 0 || tensor.size(0) != team.world()) return std::nullopt;
    own.push_back(tensor[team.rank()].clone());
  }
  return own;
}

void refuse_what_is_for_data(const Setup& setup) {
  const auto& settings = setup.settings;
  const auto refuse = [&](bool wrong, const std::string& key, const char* why, const char* hint) {
    if (wrong) throw InputError(format("{}: task {} {}", key, settings.task.name, why), key, hint);
  };
  refuse(settings.train.graph, "train.graph",
         "generates its samples, so a CUDA graph has no resident set to read",
         "set train.graph and data.resident to false");
  refuse(settings.data.resident, "data.resident", "generates new samples in each epoch",
         "set data.resident to false");
  refuse(settings.train.label_smoothing > 0, "train.label_smoothing", "has actions, not labels",
         "set it to 0");
  refuse(settings.schedule.name == "plateau", "schedule.name",
         "has a loss that does not show progress, which plateau needs",
         "choose a schedule that counts epochs or steps, such as cosine");
  refuse(!setup.mesh->is_plain(), "parallel", "needs a whole model on each rank",
         "set parallel.tensor and parallel.pipeline to 1");
}

// The samples of a round, in an order of its own.
struct Samples : Dataset {
  int64_t size() const override { return count; }
  Batch get(at::ArrayRef<int64_t> indices, bool) const override {
    std::vector<int64_t> rows;
    rows.reserve(indices.size());
    for (const auto place : indices) rows.push_back(order.at(static_cast<size_t>(place)));
    const auto which = torch::tensor(rows);
    return {inputs.index_select(0, which), targets.index_select(0, which)};
  }

  int64_t count = 0;
  at::Tensor inputs, targets;
  std::vector<int64_t> order;
};

class Acting : public SampleSource {
 public:
  Acting(const Setup& setup, std::unique_ptr<Actor> actor)
      : setup_(setup),
        team_(setup.mesh->data()),
        actor_(std::move(actor)),
        samples_of_round_(std::make_shared<Samples>()) {
    samples_of_round_->count = actor_->samples() * actor_->passes();
  }

  int64_t samples() const override { return round_size() * team_.world(); }
  bool is_shared() const override { return false; }

  // The round, one pass after another, whatever `data.shuffle` says.
  Feed feed(const Settings& settings) const override {
    auto in_order = settings;
    in_order.data.shuffle = false;
    return Feed(in_order, samples_of_round_, 0, 1, team_.device());
  }

  std::string description() const override {
    return format("{} generated samples of {} per round and rank", round_size(),
                  shape_in_words(setup_.data.input_shape));
  }

  // The round before this epoch, where there is none yet.
  void prepare(Net& net, const TrainingState& state) override {
    if (state.consumed == 0 || !has_round()) act(net, state.epoch);
  }

  // Of the round, over all ranks: "reward" and "episodes", and "recent_reward" over the last ones.
  std::optional<EpochMetrics> measured() const override {
    EpochMetrics measured{.by = "Acting", .curves = "acting", .values = {}, .counts = {"episodes"}};
    if (episodes_ > 0) measured.values.emplace_back("reward", reward_sum_ / static_cast<double>(episodes_));
    measured.values.emplace_back("episodes", episodes_);
    if (const auto recent = recent_reward()) measured.values.emplace_back("recent_reward", *recent);
    return measured;
  }

  // The mean reward over the goal's last episodes, as a loss.
  std::optional<double> cost(std::optional<double>) const override {
    const auto reward = recent_reward();
    return reward ? std::optional(-*reward) : std::nullopt;
  }

  bool has_reached_goal() const override {
    const auto goal = actor_->goal();
    return goal.reward != 0 && !recent_.empty() && std::ssize(recent_) >= goal.episodes &&
           *recent_reward() >= goal.reward;
  }

  std::string summary() const override {
    if (steps_ == 0) return {};
    return format("Acting: {} steps per rank in {:.2f} s, {:.0f} steps/s on {}", steps_, seconds_,
                  static_cast<double>(steps_ * team_.world()) / seconds_,
                  base::counted(team_.world(), "rank"));
  }

  // Inside an epoch it holds the round's samples, too.
  Tree state_dict(const TrainingState& state) const override {
    const auto dict = make_dict(
        {{"actors", gathered(team_, actor_->state())},
         {"recent", torch::tensor(std::vector<double>(recent_.begin(), recent_.end()), torch::kFloat64)},
         {"reward_sum", reward_sum_},
         {"episodes", episodes_}});
    if (state.consumed > 0 && !state.epoch_trained && has_round())
      put(dict, "samples", gathered(team_, {samples_of_round_->inputs, samples_of_round_->targets}));
    return dict;
  }

  // Where the ranks are others, their environments start again, and the rest of the epoch learns from theirs.
  void restore(const std::optional<Tree>& dict, TrainingState& state) override {
    if (dict) {
      const auto recent = as_tensor(get(*dict, "recent"), "recent").to(torch::kFloat64).contiguous();
      const auto* rewards = recent.const_data_ptr<double>();
      recent_.assign(rewards, rewards + recent.numel());
      reward_sum_ = as_double(get(*dict, "reward_sum"), "reward_sum");
      episodes_ = as_int(get(*dict, "episodes"), "episodes");
      if (restore_own(*dict, state)) return;
    }
    const bool inside = state.consumed > 0 && !state.epoch_trained;
    const auto& settings = setup_.settings;  // a step takes as many of a rank's samples at any world size
    if (inside) state.consumed = state.step_in_epoch * settings.data.batch_size * settings.train.accumulate;
    log::warning(format(
        "the checkpoint has no environments for {}, so new ones are created, and results will differ{}",
        base::counted(team_.world(), "rank"),
        inside ? ". The rest of the epoch trains on one round of samples from them" : ""));
  }

 private:
  int64_t round_size() const { return samples_of_round_->count; }

  // Not before the first one, and where a checkpoint had none for these ranks.
  bool has_round() const { return samples_of_round_->inputs.defined(); }

  // Each pass as a DistributedSampler of its own has it, seeded by run.seed and the rank.
  std::vector<int64_t> order_of(int64_t epoch) const {
    const auto seed = static_cast<uint64_t>(setup_.settings.run.seed);
    tasks::SplitMix64 random(seed, kOrders + static_cast<uint64_t>(team_.rank()));
    DistributedSampler sampler(actor_->samples(), {.shuffle = setup_.settings.data.shuffle,
                                                   .seed = static_cast<int64_t>(random.next() >> 2)});
    std::vector<int64_t> order;
    for (int64_t pass = 0; pass < actor_->passes(); ++pass) {
      sampler.set_epoch(epoch * actor_->passes() + pass);
      const auto one = sampler.indices();
      order.insert(order.end(), one.begin(), one.end());
    }
    return order;
  }

  void act(Net& net, int64_t epoch) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const EvaluationMode mode(net);
    auto acted = actor_->act(policy_of(net, setup_));
    if (acted.inputs.size(0) != actor_->samples() || acted.targets.size(0) != actor_->samples())
      throw Error(
          format("the actor of task {} returned {} samples and {} targets, but declares {} per round",
                 setup_.settings.task.name, acted.inputs.size(0), acted.targets.size(0), actor_->samples()),
          "Actor::act", "return that many in each round, on every rank");
    samples_of_round_->inputs = std::move(acted.inputs);
    samples_of_round_->targets = std::move(acted.targets);
    samples_of_round_->order = order_of(epoch);
    steps_ += acted.steps;
    seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
    count(acted.episodes);
  }

  void count(const std::vector<Episode>& own) {
    const auto rewards = rewards_of_all(team_, own);
    episodes_ = static_cast<int64_t>(rewards.size());
    reward_sum_ = std::accumulate(rewards.begin(), rewards.end(), 0.0);
    recent_.insert(recent_.end(), rewards.begin(), rewards.end());
    while (static_cast<int64_t>(recent_.size()) > actor_->goal().episodes) recent_.pop_front();
  }

  std::optional<double> recent_reward() const {
    if (recent_.empty()) return std::nullopt;
    return std::accumulate(recent_.begin(), recent_.end(), 0.0) / static_cast<double>(recent_.size());
  }

  bool restore_own(const Tree& dict, const TrainingState& state) {
    const auto actor = own_of(team_, get(dict, "actors"));
    if (!actor) return false;
    actor_->restore(*actor);
    if (state.consumed == 0 || state.epoch_trained) return true;
    const auto kept = find(dict, "samples");
    if (!kept) return true;  // it ended before its ranks, which were others, had acted
    const auto samples = own_of(team_, *kept);
    if (!samples || samples->size() != 2 || (*samples)[0].size(0) != actor_->samples() ||
        (*samples)[1].size(0) != actor_->samples()) {
      throw InputError(format("the checkpoint does not hold {} samples per rank", actor_->samples()),
                       "lockstep.acting.samples", "resume with the task.options that it was trained with");
    }
    samples_of_round_->inputs = (*samples)[0];
    samples_of_round_->targets = (*samples)[1];
    samples_of_round_->order = order_of(state.epoch);
    return true;
  }

  const Setup& setup_;
  const Team& team_;  // of those that have samples of their own
  std::unique_ptr<Actor> actor_;
  std::shared_ptr<Samples> samples_of_round_;
  std::deque<double> recent_;  // rewards of all ranks' last episodes; the same on every rank
  double reward_sum_ = 0;      // of the round's
  int64_t episodes_ = 0;       // of the round
  int64_t steps_ = 0;          // of this attempt and rank
  double seconds_ = 0;
};

}  // namespace

std::unique_ptr<SampleSource> make_acting(const Setup& setup, std::unique_ptr<Actor> actor) {
  refuse_what_is_for_data(setup);
  return std::make_unique<Acting>(setup, std::move(actor));
}

EpisodeRewards play_episodes(const Setup& setup, const Actor& actor, Net& net) {
  const EvaluationMode mode(net);
  const auto policy = policy_of(net, setup);
  const ShardSampler groups(kPlayed / kTogether, setup.team->rank(), setup.team->world());
  std::vector<double> rewards(kPlayed);
  for (const auto group : groups.indices()) {
    const auto own = actor.play(policy, group * kTogether, kTogether);
    if (std::ssize(own) != kTogether)
      throw Error(format("the actor of task {} ran {} episodes instead of {}", setup.settings.task.name,
                         own.size(), kTogether),
                  "Actor::play", "return one reward for each episode");
    std::ranges::copy(own, rewards.begin() + group * kTogether);
  }
  setup.team->sum(rewards);  // of all ranks but one each is 0
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / kPlayed;
  const auto [least, largest] = std::ranges::minmax(rewards);
  const auto goal = actor.goal().reward;
  return {mean, least, largest, goal == 0 ? std::nullopt : std::optional<double>(goal)};
}

std::string report_of(const EpisodeRewards& play) {
  auto text =
      format("reward      {:.4f}\nsmallest    {:g}\nlargest     {:g}", play.reward, play.least, play.largest);
  if (play.goal)
    text += format("\nsolved      {} (a mean of {:g} or more)", play.solved() ? "yes" : "no", *play.goal);
  return text;
}

}  // namespace lockstep::train
