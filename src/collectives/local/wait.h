// Waiting for a 32-bit word to change, across threads and processes: a futex with a time limit, which std::atomic::wait
// lacks (and which it would not do across processes). Ranks may outnumber cores, so nobody spins for long.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace plimsoll::collectives::local {

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

// Returns when the word is no longer `seen`, after a wake, after `limit`, or for no reason.
void wait_while(Word& word, std::uint32_t seen, std::chrono::milliseconds limit);
void wake_all(Word& word);

// How often a waiting rank looks whether somebody is lost.
inline constexpr std::chrono::milliseconds kLook{20};

}  // namespace plimsoll::collectives::local
