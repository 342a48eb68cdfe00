#include <lockstep/workshop.h>

// Before a job's time limit, the scheduler sends a signal. It may reach only one rank, or reach ranks at different
// times. If a rank simply exits, the others wait in their next all-reduce and no checkpoint is saved. So the ranks have
// to agree: all stop after the same step, and save together.
//
// Here a simulated signal reaches rank `who` (-1: all ranks) during step `when`. Each step has an all-reduce, like
// backward.

// Whether to stop now. Each rank calls this at the end of each step; `noticed`: this rank has received a signal.
bool shall_stop(const lockstep::Session& session, bool noticed) {
  // TODO: include the other ranks
  (void)session;
  return noticed;
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
