// The handshake before the first collective of a run: do all ranks mean the same run? Each gives the same named fields (build, run
// file, data, layout) as text; where one differs, all ranks fail with one message that names the field, the ranks and what
// each has. Long values are compared whole and shown short.
#pragma once

#include <string>
#include <vector>

#include "collectives/group.h"

namespace plimsoll::collectives {

struct Field {
  std::string name;
  std::string value;
};

// Collective over `group`. Throws bad_input.
void agree(Group& group, const std::vector<Field>& fields);

}  // namespace plimsoll::collectives
