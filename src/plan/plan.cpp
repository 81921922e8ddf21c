#include "plan/plan.h"

namespace plimsoll::plan {

namespace {

template <typename T, typename SameButName>
bool same_lists(const std::vector<T>& a, const std::vector<T>& b, SameButName same) {
  if (a.size() != b.size()) return false;
  for (std::size_t index = 0; index < a.size(); ++index) {
    if (!same(a[index], b[index])) return false;
  }
  return true;
}

constexpr std::array<std::string_view, kTiers> kTierNames{"device", "host", "disk"};
constexpr std::array<std::string_view, 3> kAccessNames{"read", "write", "update"};
constexpr std::array<std::string_view, 7> kStreamNames{"compute", "communication", "host-in",     "host-out",
                                                       "disk-in", "disk-out",      "host-compute"};
constexpr std::array<std::string_view, 10> kBufferNames{"parameter", "master",   "state",      "constant", "scalars",
                                                        "input",     "gradient", "activation", "result",   "frame"};

}  // namespace

bool same_work(const Procedure& a, const Procedure& b) {
  return a.frame == b.frame && a.instructions == b.instructions &&
         same_lists(a.slots, b.slots, [](const Slot& x, const Slot& y) { return x.type == y.type && x.access == y.access; }) &&
         same_lists(a.temporaries, b.temporaries,
                    [](const Temporary& x, const Temporary& y) { return x.type == y.type && x.offset == y.offset; });
}

std::string_view name_of(Tier tier) { return kTierNames.at(static_cast<std::size_t>(tier)); }
std::string_view name_of(Access access) { return kAccessNames.at(static_cast<std::size_t>(access)); }
std::string_view name_of(StreamKind kind) { return kStreamNames.at(static_cast<std::size_t>(kind)); }
std::string_view name_of(BufferKind kind) { return kBufferNames.at(static_cast<std::size_t>(kind)); }

const Program* find_program(const RankClass& rank_class, std::string_view name) {
  for (const Program& program : rank_class.programs) {
    if (program.name == name) return &program;
  }
  return nullptr;
}

}  // namespace plimsoll::plan
