#pragma once
// What an exercise of the course needs: a narrow lockstep.h, the layers and losses of its models, show(). It
// is precompiled once for all learners (lockstep workshop prepare), so that an exercise builds in seconds:
// include it first.

#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/collective/save.h"
#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/algorithms/local_ranks.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/lesson/show.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/mesh.h"
#include "lockstep/parallel/session.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/parallel/team.h"
#include "lockstep/parallel/tensor_layers.h"
#include "lockstep/tasks/collective/sets.h"
