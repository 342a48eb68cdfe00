#include <lockstep/workshop.h>

// A job has `world` ranks. The launcher fills the first node with `ranks_per_node` ranks, then the next one. With 5
// ranks and 2 per node, node 0 has ranks 0 and 1, node 1 has 2 and 3, and node 2 has only rank 4.

struct Place {
  int node;           // from 0
  int local_rank;     // the rank's index on its node, from 0; it selects the GPU
  int ranks_on_node;  // the number of ranks on this node
};

Place place_of(int rank, int world, int ranks_per_node) {
  // TODO: where is this rank?
  (void)ranks_per_node;
  return {0, rank, world};
}

// Each rank runs all of this; only session.rank() differs.
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
