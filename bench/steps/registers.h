// The arithmetic of a step with nothing around it: what no program that does the same multiplications can be faster than.
#pragma once

namespace plimsoll::bench {

// So many floating-point operations as f32 multiply-adds that never leave the registers, dealt out evenly to `threads` threads.
// Returns what came out, so that none of it can be left out.
float multiply_in_registers(double flops, int threads);

}  // namespace plimsoll::bench
