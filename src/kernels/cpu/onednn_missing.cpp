// Takes the place of onednn_gemm.cpp in builds without oneDNN: always refuses, so the next kernel of the table is taken.
#include "base/error.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn_gemm.h"

namespace plimsoll::kernels::cpu {

void settle_onednn_isa() {}

struct OnednnMatmul::State {};

OnednnMatmul::OnednnMatmul(const OnednnGemm&, int) {}

std::optional<std::string> OnednnMatmul::refusal() const { return "this plimsoll was built without oneDNN"; }

std::int64_t OnednnMatmul::workspace() const { return 0; }

void OnednnMatmul::prepare() { PLIMSOLL_CHECK(false, "a kernel that refused is prepared"); }

void OnednnMatmul::run(const void*, const void*, const void*, void*, std::byte*) const {
  PLIMSOLL_CHECK(false, "a kernel that refused is run");
}

}  // namespace plimsoll::kernels::cpu
