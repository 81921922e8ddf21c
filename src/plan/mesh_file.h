// The mesh in a plan's file: extents of the axes that every mesh has, and a row with its extent for each further one.
#pragma once

#include "base/json.h"
#include "plan/mesh.h"

namespace plimsoll::plan {

void put_mesh(base::Json& plan, const Mesh& mesh);
// bad_input where it is no mesh.
Mesh mesh_from(const base::Json& plan);

}  // namespace plimsoll::plan
