#pragma once
// The library in one include: join the job, open a group, wrap a module, deal out the data.
//
//   lockstep::Session session;
//   auto model = lockstep::ddp(Net(), session);

#include "lockstep/base/error.h"
#include "lockstep/comm/group.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/runtime.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/exchange.h"
#include "lockstep/parallel/session.h"
#include "lockstep/parallel/sync_batch_norm.h"
