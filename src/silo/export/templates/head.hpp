/**
 * The kernels of @ORIGIN@ as functions of C++17. Made by `silo export`; see README.md.
 *
 * Each launches on `queue` (silo::cpu(), silo::cuda(stream), silo::rocm(stream)) and throws
 * silo::error. The overload whose first parameter is a silo_error throws nothing: it returns 0, or a
 * code of `enum silo_code` with the error filled. Those in `warmup` load all that the same call
 * needs and launch nothing, as before a graph is captured.
 */
#ifndef @GUARD@_HPP
#define @GUARD@_HPP

#include "@NAME@.h"
#include "silo/silo.hpp"

#include <cmath>

namespace @NAMESPACE@ {

/// Open the embedded bundle with options of your own, before the first call.
inline void open(const silo_options &options) {
    silo_error error;
    silo::check(@NAME@_open(&options, &error), error);
}

/// Unload all code. Launches must have ended; the next call opens the bundle again.
inline void close() noexcept { @NAME@_close(); }

