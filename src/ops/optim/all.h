// Every update rule. A new one is a file beside these and a row here: the table (rules.cpp) and the device's code are made from it.
#pragma once

#include "ops/optim/adam.h"
#include "ops/optim/lamb.h"
#include "ops/optim/lion.h"
#include "ops/optim/muon.h"
#include "ops/optim/rmsprop.h"
#include "ops/optim/sgd.h"

namespace plimsoll::ops {

template <typename... Rules>
struct RuleList {};

using AllRules = RuleList<SgdRule,          //
                          MomentumRule,     //
                          AdamRule<false>,  //
                          AdamRule<true>,   //
                          RmspropRule,      //
                          LionRule,         //
                          LambRule,         //
                          MuonRule>;

}  // namespace plimsoll::ops
