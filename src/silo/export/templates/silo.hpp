// The common part of the typed headers of exports: errors, queues, arrays. C++17; all inline.
#ifndef SILO_HPP
#define SILO_HPP

#include "elements.h"
#include "silo.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace silo {

using float16 = silo_float16;
using bfloat16 = silo_bfloat16;
using float8_e4m3fn = silo_float8_e4m3fn;
using float8_e4m3fnuz = silo_float8_e4m3fnuz;
using float8_e4m3b11fnuz = silo_float8_e4m3b11fnuz;
using float8_e5m2 = silo_float8_e5m2;
using float8_e5m2fnuz = silo_float8_e5m2fnuz;

/// The error of a failed call: `what()` is the message, `code()` is one of `enum silo_code`.
class error : public std::runtime_error {
  public:
    explicit error(const silo_error &from)
        : std::runtime_error(from.text), code_(from.code), driver_code_(from.driver_code),
          details_(from.details != nullptr ? from.details : "") {}

    int code() const noexcept { return code_; }

    /// The error code of the device's driver; 0 if the error did not come from a driver.
    int driver_code() const noexcept { return driver_code_; }

    /// If no variant fits: a line for each variant with the reason.
    const std::string &details() const noexcept { return details_; }

  private:
    int code_, driver_code_;
    std::string details_;
};

/// Throws the error that a function reported, unless `code`, its result, is 0.
inline void check(int code, silo_error &said) {
    if (code == 0)
        return;
    const error thrown(said);
    silo_error_clear(&said);
    throw thrown;
}

/// The device and stream of a call. On a CPU the call returns after the work; on a GPU before.
using queue = silo_queue;

inline queue cpu() noexcept { return {SILO_CPU, 0, nullptr}; }
inline queue cuda(void *stream = nullptr, int index = 0) noexcept {
    return {SILO_CUDA, index, stream};
}
inline queue rocm(void *stream = nullptr, int index = 0) noexcept {
    return {SILO_ROCM, index, stream};
}

/// The number of programs along each axis, for kernels that declare no grid.
struct grid {
    std::int64_t x = 1, y = 1, z = 1;
};

/// An array: data, shape, and strides in elements (null: contiguous). The call only borrows them.
template <class T> struct array {
    T *data;
    std::int32_t rank;
    const std::int64_t *shape, *strides;

    array(T *at, std::int32_t axes, const std::int64_t *extents,
          const std::int64_t *steps = nullptr) noexcept
        : data(at), rank(axes), shape(extents), strides(steps) {}
    template <std::size_t Rank>
    array(T *at, const std::int64_t (&extents)[Rank],
          const std::int64_t *steps = nullptr) noexcept
        : array(at, static_cast<std::int32_t>(Rank), extents, steps) {}

    operator array<const T>() const noexcept { return {data, rank, shape, strides}; }
};

/// A tensor descriptor of a whole array. `block`: null if all code has the same block shape.
/// `flags`: SILO_ARGUMENT_PAD_NAN, SILO_ARGUMENT_ROUND_TF32.
template <class T, std::size_t Rank> struct descriptor {
    T *data;
    const std::int64_t *shape, *strides, *block;
    unsigned flags;

    descriptor(T *at, const std::int64_t (&extents)[Rank], const std::int64_t *steps = nullptr,
               const std::int64_t *blocks = nullptr, unsigned marks = 0) noexcept
        : data(at), shape(extents), strides(steps), block(blocks), flags(marks) {}
};

/// The launches of a step, replayed as one (a plan of silo.h). For use by one thread at a time.
/// Destroy it before the bundles of its kernels are closed.
class plan {
  public:
    /// A plan without launches: `add` them in order, `run` them, then add the launches of the next step.
    explicit plan(const queue &where) {
        silo_error said;
        check(silo_plan_begin(&where, &handle_, &said), said);
    }

    /// A plan that is stored in a bundle (silo.step). Each `call` runs one step.
    plan(silo_bundle *bundle, const char *name, const queue &where) {
        silo_error said;
        check(silo_bundle_plan(bundle, name, &where, &handle_, &said), said);
    }

    /// Takes over a plan of silo.h.
    explicit plan(silo_plan *made) noexcept : handle_(made) {}

    plan(plan &&other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
    plan &operator=(plan &&other) noexcept {
        silo_plan *mine = handle_;
        handle_ = other.handle_;
        other.handle_ = mine; // other's destructor closes it
        return *this;
    }
    plan(const plan &) = delete;
    plan &operator=(const plan &) = delete;
    ~plan() { silo_plan_close(handle_); }

    /// Adds a launch to the step. `how`: a grid and options; null: neither.
    void add(silo_kernel *kernel, const silo_argument *arguments, std::size_t count,
             const silo_call *how = nullptr) {
        silo_error said;
        check(silo_plan_add(handle_, kernel, arguments, count, how, &said), said);
    }
    template <std::size_t Count>
    void add(silo_kernel *kernel, const silo_argument (&arguments)[Count],
             const silo_call *how = nullptr) {
        add(kernel, arguments, Count, how);
    }

    /// Launches the added launches; without new launches, the last step again.
    void run(void *stream = nullptr) {
        silo_error said;
        check(silo_plan_run(handle_, stream, &said), said);
    }

    /// Runs a plan of a bundle with all its arguments.
    void call(const silo_argument *arguments, std::size_t count, void *stream = nullptr) {
        silo_error said;
        check(silo_plan_call(handle_, stream, arguments, count, &said), said);
    }

    /// How the last run was launched, and why; empty before the first run.
    std::string explain() const {
        const char *reason = nullptr, *way = silo_plan_explain(handle_, &reason);
        return way == nullptr ? std::string() : std::string(way) + ": " + reason;
    }

    silo_plan *handle() const noexcept { return handle_; }

  private:
    silo_plan *handle_ = nullptr;
};

} // namespace silo

#endif
