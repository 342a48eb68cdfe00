#pragma once
// The library in one include: join the job, open a group, wrap a module, deal out the data.
//
//   lockstep::Session session;
//   auto model = lockstep::ddp(Net(), session);

#include "base/error.h"
#include "comm/group.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "launch/job.h"
#include "launch/runtime.h"
#include "models/net.h"
#include "parallel/ddp.h"
#include "parallel/exchange.h"
#include "parallel/session.h"
#include "parallel/sync_batch_norm.h"
