// CUDA's language for the CPU: the first include of every kernel's text.
#pragma once
#include "emulator/atomics.h"
#include "emulator/entry.h"
#include "emulator/intrinsics.h"
#include "emulator/math.h"
#include "emulator/threads.h"
#include "emulator/warps.h"

#define assert(condition)                                                                          \
    ((condition) ? (void)0                                                                         \
                 : silo_cuda::stop("the assertion fails: " #condition,                             \
                                   silo_threads::Place{__FILE__, __LINE__}))
