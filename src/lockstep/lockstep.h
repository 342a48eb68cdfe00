#pragma once
// The library in one include: join the job, wrap a module, deal out the data.
//
//   lockstep::Session session;
//   auto model = lockstep::ddp(Net(), session);

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/models/net.h"
#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/mean.h"
#include "lockstep/parallel/session.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/parallel/team.h"
