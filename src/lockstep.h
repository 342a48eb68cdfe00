#pragma once
// The library in one include: join the job, open a group, wrap a module, deal out the data.
//
//   lockstep::Runtime job;
//   auto group = lockstep::comm::connect(job, {});
//   auto model = lockstep::ddp(Net(), group);

#include "base/error.h"
#include "comm/group.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "launch/job.h"
#include "launch/runtime.h"
#include "models/net.h"
#include "parallel/ddp.h"
