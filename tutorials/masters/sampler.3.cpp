//@ title      Count each sample once
//@ hint       There are 10 answers and 3 ranks. How many answers does DistributedSampler give out, and which of them twice?
//@ hint       ShardSampler(size, rank, world) cuts the list into blocks and repeats nothing. The blocks may differ in size.
//@ hint       A mean of means counts a small block as much as a large one. Sum the right answers, sum all answers, then divide.
//@ hint       Mean does both: right.add(...) for each answer, then session.all_reduce(right).
//@ unsolved   counted twice
#include <lockstep/workshop.h>

// A model has given ten answers: 1 is correct, 0 is wrong. What is the fraction of correct answers? The ranks divide
// the work: one rank looks at each answer, once, and all ranks get the same result.

class Answers {
 public:
  explicit Answers(std::string right) : right_(std::move(right)) {}
  Answers(const Answers&) = delete;  // reads from a copy would not be counted
  int64_t size() const { return std::ssize(right_); }
  double look(int64_t answer) {
    looked_at_.push_back(answer);
    return right_.at(answer) == '1' ? 1 : 0;
  }
  const std::vector<int64_t>& looked_at() const { return looked_at_; }

 private:
  std::string right_;
  std::vector<int64_t> looked_at_;
};

double share_of_right(Answers& answers, const lockstep::Session& session) {
  const int64_t size = answers.size();
  //@ todo
  // TODO: this is correct only if ten is divisible by the number of ranks. Run it on three.
  const lockstep::DistributedSampler mine(size, session, {.shuffle = false});
  //@ solution
  const lockstep::ShardSampler mine(size, session.rank(), session.world());
  //@ right rounded_up
  const int64_t each = (size + session.world() - 1) / session.world(), first = session.rank() * each;
  struct { std::vector<int64_t> list; const std::vector<int64_t>& indices() const { return list; } } mine;
  for (int64_t answer = first; answer < std::min(first + each, size); ++answer) mine.list.push_back(answer);
  //@ wrong all: looks at all
  const lockstep::ShardSampler mine(size, 0, 1);
  //@ wrong first: the work is not shared
  const lockstep::ShardSampler mine(session.rank() == 0 ? size : 0, 0, 1);
  //@ wrong padded: counted twice
  const lockstep::DistributedSampler mine(size, session, {.shuffle = false});
  //@ wrong dropped: some are not counted
  const lockstep::DistributedSampler mine(size, session, {.shuffle = false, .drop_last = true});
  //@ end
  lockstep::Mean right;
  for (const int64_t answer : mine.indices()) right.add(answers.look(answer));
  //@ todo
  std::vector<double> shares = {right.value()};
  session.team().sum(shares);
  return shares[0] / session.world();
  //@ solution
  return session.all_reduce(right);
  //@ wrong means
  std::vector<double> shares = {right.value()};
  session.team().sum(shares);
  return shares[0] / session.world();
  //@ wrong ten
  std::vector<double> count = {right.value() * double(std::ssize(mine.indices()))};
  session.team().sum(count);
  return count[0] / 10;
  //@ wrong show
  return 0.7;
  //@ wrong own
  return right.value();
  //@ end
}

// ANSWERS
int main(int count, char** words) {
  return lockstep::run([&] {
    lockstep::Session session;
    Answers answers(count > 1 ? words[1] : "0110111011");
    lockstep::show("share", share_of_right(answers, session));
    lockstep::show("looked at", answers.looked_at());
  });
}
