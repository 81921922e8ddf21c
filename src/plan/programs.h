// What the programs of a rank have to do with each other: which of them must run around another one, by what they read and write of the
// values that outlive them. A program that works for others says only whether it goes ahead of them or behind (Cadence::When); nobody
// lists programs by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace plimsoll::plan {

// By its instructions: what verify compares with what the program says (Program::touches), and what counts where it says nothing.
Touches touches_of(const Plan& plan, const RankClass& rank_class, const Program& program);

// By name, what must run with a program. All ranks are looked at: what one of them needs may meet others.
struct Around {
  std::vector<std::string> ahead{};   // they write what it reads; one that reads all that they read does their work itself
  std::vector<std::string> behind{};  // they read what it writes
};
Around around(const Plan& plan, std::string_view program);

}  // namespace plimsoll::plan
