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
  // TODO: this is correct only if ten is divisible by the number of ranks. Run it on three.
  const lockstep::DistributedSampler mine(size, session, {.shuffle = false});
  lockstep::Mean right;
  for (const int64_t answer : mine.indices()) right.add(answers.look(answer));
  std::vector<double> shares = {right.value()};
  session.team().sum(shares);
  return shares[0] / session.world();
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
