// f16 to f32 and back, many at a time: by the processor's own instructions where it has them (a tenth of the time), one by one where
// not. Both round to nearest even, so both give the same bits (but for signalling NaNs, which no arithmetic makes).
#pragma once

#include <cstdint>

namespace plimsoll::collectives {

void widen_f16(const std::uint16_t* from, std::int64_t count, float* to);
void narrow_f16(const float* from, std::int64_t count, std::uint16_t* to);

}  // namespace plimsoll::collectives
