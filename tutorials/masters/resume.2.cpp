//@ title      Stop all ranks after the same step
//@ hint       Only the rank that received the signal knows about it. All ranks must know, in the same step.
//@ hint       Sum a flag of 0 or 1 over all ranks. What does a sum above 0 mean?
//@ hint       Every rank must call the sum in every step, even without a signal, because it is a collective.
#include <lockstep/workshop.h>

// Before a job's time limit, the scheduler sends a signal. It may reach only one rank, or reach ranks at different
// times. If a rank simply exits, the others wait in their next all-reduce and no checkpoint is saved. So the ranks have
// to agree: all stop after the same step, and save together.
//
// Here a simulated signal reaches rank `who` (-1: all ranks) during step `when`. Each step has an all-reduce, like
// backward.

// Whether to stop now. Each rank calls this at the end of each step; `noticed`: this rank has received a signal.
bool shall_stop(const lockstep::Session& session, bool noticed) {
  //@ todo
  // TODO: include the other ranks
  (void)session;
  return noticed;
  //@ solution
  std::vector<double> votes = {noticed ? 1.0 : 0.0};
  session.team().sum(votes);
  return votes[0] > 0;
  //@ wrong thrown: exited with an error
  if (noticed) throw std::runtime_error("a signal came");
  return false;
  //@ wrong first
  return session.team().broadcast(noticed ? "stop" : "go on") == "stop";
  //@ wrong unanimous
  std::vector<double> votes = {noticed ? 1.0 : 0.0};
  session.team().sum(votes);
  return votes[0] == session.world();
  //@ wrong always
  std::vector<double> votes = {1.0};
  session.team().sum(votes);
  return votes[0] > 0 || noticed;
  //@ wrong never
  std::vector<double> votes = {noticed ? 1.0 : 0.0};
  session.team().sum(votes);
  return false;
  //@ end
}

int main(int argc, char** argv) {
  return lockstep::run([&] {
    lockstep::Session session;
    const int who = argc > 1 ? std::stoi(argv[1]) : 1;
    const int when = argc > 2 ? std::stoi(argv[2]) : 5;

    std::vector<double> gradients = {0, 0, 0};
    for (int step = 1; step <= 12; ++step) {
      gradients = {1.0, 2.0, 3.0};
      session.team().sum(gradients);
      lockstep::show("step", step);
      const bool noticed = (who == -1 || session.rank() == who) && step >= when;
      if (!shall_stop(session, noticed)) continue;
      lockstep::show("stopped", step);
      break;
    }
    session.team().barrier();  // all save together
    lockstep::show("saved", 1);
  });
}
