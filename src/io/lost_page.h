// Touching a page of a mapped file that is no longer there, since somebody cut the file short in that moment or its drive failed, is a
// signal and no exception. The process cannot go on, but it can say why it ends.
#pragma once

namespace plimsoll::io {

// From now on such a signal writes one paragraph that names the file to the standard error stream and ends the process as bad input does.
void end_on_lost_page();

}  // namespace plimsoll::io
