// How far apart two of this machine's cores are: a virtual machine's may share a cache now and none a few seconds later, wherever the host
// puts them, and what threads compute together is then a third slower. Measurements look here before and after, to know which of them
// were made in the same place.
#pragma once

namespace plimsoll::train {

// Seconds in which a word goes from the first core that this process may use to the last and back; the least of several tries, a few
// milliseconds in all. 0 where there is one core alone.
double core_round_trip();

// Whether cores whose round trip takes `seconds` are apart, where the least that was ever seen is `least`.
bool cores_apart(double seconds, double least);

}  // namespace plimsoll::train
