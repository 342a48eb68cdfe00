#include <lockstep/workshop.h>

// A job has `world` ranks. The launcher fills the first node with `ranks_per_node` of them, then the next one:
// with 5 ranks and 2 a node, node 0 has the ranks 0 and 1, node 1 has 2 and 3, node 2 has rank 4 alone.

struct Place {
  int node;           // from 0
  int local_rank;     // the rank's place on its node, from 0: a GPU is chosen by it
  int ranks_on_node;  // how many ranks this node has
};

Place place_of(int rank, int world, int ranks_per_node) {
  // TODO: where is this rank?
  (void)ranks_per_node;
  return {0, rank, world};
}

// Each rank runs all of this, and is told apart by session.rank() alone.
int main(int argc, char** argv) {
  return lockstep::run([&] {
    const int ranks_per_node = argc > 1 ? std::stoi(argv[1]) : 2;
    lockstep::Session session;
    const Place place = place_of(session.rank(), session.world(), ranks_per_node);
    lockstep::show("node", place.node);
    lockstep::show("local rank", place.local_rank);
    lockstep::show("ranks on its node", place.ranks_on_node);
  });
}
