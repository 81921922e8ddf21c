// Which instruction sets Highway compiles kernels for; include before any Highway header. AVX-512 and AVX2 are where
// training happens; one portable fallback keeps every other machine working. More would only cost compile time.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
