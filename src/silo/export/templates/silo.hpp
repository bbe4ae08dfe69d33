// The common part of the typed headers of exported bundles: errors, queues, arrays. C++17; nothing but inline.
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

/// Why a call failed: `what()` is the message, `code()` is one of `enum silo_code`.
class error : public std::runtime_error {
  public:
    explicit error(const silo_error &from)
        : std::runtime_error(from.text), code_(from.code), driver_code_(from.driver_code),
          details_(from.details != nullptr ? from.details : "") {}

    int code() const noexcept { return code_; }

    /// The code of a device's driver; 0 where none had a say.
    int driver_code() const noexcept { return driver_code_; }

    /// If no variant fits: each with its reason, one a line.
    const std::string &details() const noexcept { return details_; }

  private:
    int code_, driver_code_;
    std::string details_;
};

/// Throws the error of a function that returned `code`, unless it is 0.
inline void check(int code, silo_error &said) {
    if (code == 0)
        return;
    const error thrown(said);
    silo_error_clear(&said);
    throw thrown;
}

/// The device of a call: a CPU is done when the call returns, a GPU in the order of its stream.
using queue = silo_queue;

inline queue cpu() noexcept { return {SILO_CPU, 0, nullptr}; }
inline queue cuda(void *stream = nullptr, int index = 0) noexcept {
    return {SILO_CUDA, index, stream};
}
inline queue rocm(void *stream = nullptr, int index = 0) noexcept {
    return {SILO_ROCM, index, stream};
}

/// The programs along each axis, for kernels that declare no grid.
struct grid {
    std::int64_t x = 1, y = 1, z = 1;
};

/// An array with its shape, and strides in elements (null: compact). Both are borrowed for the call.
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

/// A tensor descriptor of a whole array. `block`: null where all code has the same block shape.
/// `flags`: SILO_ARGUMENT_PAD_NAN, SILO_ARGUMENT_ROUND_TF32.
template <class T, std::size_t Rank> struct descriptor {
    T *data;
    const std::int64_t *shape, *strides, *block;
    unsigned flags;

    descriptor(T *at, const std::int64_t (&extents)[Rank], const std::int64_t *steps = nullptr,
               const std::int64_t *blocks = nullptr, unsigned marks = 0) noexcept
        : data(at), shape(extents), strides(steps), block(blocks), flags(marks) {}
};

/// The launches of a step as one (the plans of silo.h). Used by one thread at a time; closed before
/// the bundles of its kernels.
class plan {
  public:
    /// Without launches: `add` them in order, `run` them, and begin again.
    explicit plan(const queue &where) {
        silo_error said;
        check(silo_plan_begin(&where, &handle_, &said), said);
    }

    /// A plan that a bundle keeps (silo.step): each `call` is one step.
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
        other.handle_ = mine; // closed with it
        return *this;
    }
    plan(const plan &) = delete;
    plan &operator=(const plan &) = delete;
    ~plan() { silo_plan_close(handle_); }

    /// The next launch of the step. `how`: a grid, options; null: neither.
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

    /// Launch the additions; without additions the last step again.
    void run(void *stream = nullptr) {
        silo_error said;
        check(silo_plan_run(handle_, stream, &said), said);
    }

    /// Run a plan of a bundle, with all its arguments.
    void call(const silo_argument *arguments, std::size_t count, void *stream = nullptr) {
        silo_error said;
        check(silo_plan_call(handle_, stream, arguments, count, &said), said);
    }

    /// How the last run was launched, and why; empty before the first.
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
