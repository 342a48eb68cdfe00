#pragma once
// The library in one include, all that a training program needs: the session, the data, the model in DDP,
// optimizers and schedules, checkpoints.
//
//   lockstep::Session session;
//   auto model = lockstep::ddp(Net(), session);

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/collective/save.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/models/chain.h"
#include "lockstep/models/net.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/optim/torch_optimizer.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/mesh.h"
#include "lockstep/parallel/session.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/parallel/team.h"
#include "lockstep/parallel/tensor_layers.h"
#include "lockstep/recompute/checkpoint_activations.h"
#include "lockstep/tasks/collective/sets.h"
#include "lockstep/zero/sharded_optimizer.h"
