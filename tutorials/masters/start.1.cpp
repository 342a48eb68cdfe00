//@ title      Find a rank's node and its local rank
//@ hint       Write down 5 ranks with 2 on a node: 0 1 | 2 3 | 4. Which node is rank 3 on? What is its local rank?
//@ hint       The node is the number of full nodes before the rank, and the local rank is the remainder: / and %.
//@ hint       The last node has only the remaining ranks: world - node * ranks_per_node, if that is less.
#include <lockstep/workshop.h>

// A job has `world` ranks. The launcher fills the first node with `ranks_per_node` ranks, then the next one. With 5
// ranks and 2 per node, node 0 has ranks 0 and 1, node 1 has 2 and 3, and node 2 has only rank 4.

struct Place {
  int node;           // from 0
  int local_rank;     // the rank's index on its node, from 0; it selects the GPU
  int ranks_on_node;  // the number of ranks on this node
};

Place place_of(int rank, int world, int ranks_per_node) {
  //@ todo
  // TODO: where is this rank?
  (void)ranks_per_node;
  return {0, rank, world};
  //@ solution
  const int node = rank / ranks_per_node;
  const int left = world - node * ranks_per_node;
  return {node, rank % ranks_per_node, std::min(ranks_per_node, left)};
  //@ wrong remainder
  const int node = rank / ranks_per_node;
  const bool is_last = node == (world - 1) / ranks_per_node;
  return {node, rank % ranks_per_node, is_last ? world % ranks_per_node : ranks_per_node};
  //@ wrong two_nodes
  const int node = rank < ranks_per_node ? 0 : 1;
  const int left = world - node * ranks_per_node;
  return {node, rank % ranks_per_node, std::min(ranks_per_node, left)};
  //@ wrong node_one
  const int node = rank / ranks_per_node;
  const int left = world - node * ranks_per_node;
  return {node + 1, rank % ranks_per_node, std::min(ranks_per_node, left)};
  //@ wrong swapped
  const int node = rank / ranks_per_node;
  const int left = world - node * ranks_per_node;
  return {rank % ranks_per_node, node, std::min(ranks_per_node, left)};
  //@ wrong late
  const int node = rank / (ranks_per_node + 1);
  return {node, rank % ranks_per_node, std::min(ranks_per_node, world - node * ranks_per_node)};
  //@ wrong own_number
  const int node = rank / ranks_per_node;
  const int left = world - node * ranks_per_node;
  return {node, rank, std::min(ranks_per_node, left)};
  //@ wrong place_is_node
  const int node = rank / ranks_per_node;
  const int left = world - node * ranks_per_node;
  return {node, node, std::min(ranks_per_node, left)};
  //@ wrong job
  return {rank / ranks_per_node, rank % ranks_per_node, world};
  //@ wrong from_it_on
  return {rank / ranks_per_node, rank % ranks_per_node, std::min(ranks_per_node, world - rank)};
  //@ wrong dealt
  const int nodes = (world + ranks_per_node - 1) / ranks_per_node;
  const int node = rank % nodes;
  return {node, rank / nodes, (world - node + nodes - 1) / nodes};
  //@ wrong full
  return {rank / ranks_per_node, rank % ranks_per_node, ranks_per_node};
  //@ wrong one
  const int node = rank / ranks_per_node;
  const int left = world - node * ranks_per_node;
  return {node, rank % ranks_per_node + 1, std::min(ranks_per_node, left)};
  //@ end
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
