// The threads of the emulator, under Metal's names; the code is shared with other kinds of kernels.
#pragma once

#define SILO_THREADS_GROUP "threadgroup"
#define SILO_THREADS_BARRIER "threadgroup_barrier"
#define SILO_THREADS_GROUP_BYTES 32768
#define SILO_THREADS_MASKED 0

// In Metal `thread` is a macro; in the shared headers it is an ordinary name.
#pragma push_macro("thread")
#undef thread
#include <silo_threads/groups.h>
#include <silo_threads/meeting.h>
#pragma pop_macro("thread")

namespace silo_metal {
using namespace silo_threads;
} // namespace silo_metal
