// The parts of an export's self-test: arrays on the device of a call, with the same numbers as in
// Python, and their comparison with the expected numbers.
#ifndef SILO_SELFTEST_HPP
#define SILO_SELFTEST_HPP

#include "../silo/silo.hpp"

extern "C" {
#include "../silo/generator.h"
}

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace silo_selftest {

// The memory of a queue's device. Drivers are found at run time, so building needs no driver.
class place {
  public:
    // Throws std::runtime_error if the device is absent.
    explicit place(const silo::queue &where) : queue(where) {
        if (where.device == SILO_CUDA)
            open_cuda(where.index);
        else if (where.device == SILO_ROCM)
            open_rocm(where.index);
    }

    const silo::queue queue;

    const char *name() const {
        return queue.device == SILO_CUDA ? "cuda" : queue.device == SILO_ROCM ? "rocm" : "cpu";
    }

    void *allocate(std::size_t bytes) const {
        const std::size_t rounded = (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0);
        if (queue.device == SILO_CUDA) {
            unsigned long long address = 0;
            succeed(cuda_allocate_(&address, rounded), "cuMemAlloc");
            return reinterpret_cast<void *>(static_cast<std::uintptr_t>(address));
        }
        void *memory = nullptr;
        if (queue.device == SILO_ROCM)
            succeed(rocm_allocate_(&memory, rounded), "hipMalloc");
        else
            memory = std::aligned_alloc(64, rounded);
        if (memory == nullptr)
            throw std::runtime_error("out of memory");
        return memory;
    }

    void release(void *memory) const noexcept {
        if (queue.device == SILO_CUDA)
            cuda_free_(reinterpret_cast<std::uintptr_t>(memory));
        else if (queue.device == SILO_ROCM)
            rocm_free_(memory);
        else
            std::free(memory);
    }

    void upload(void *to, const void *from, std::size_t bytes) const {
        if (bytes == 0)
            return;
        if (queue.device == SILO_CUDA)
            succeed(cuda_up_(reinterpret_cast<std::uintptr_t>(to), from, bytes), "cuMemcpyHtoD");
        else if (queue.device == SILO_ROCM)
            succeed(rocm_copy_(to, from, bytes, 1), "hipMemcpy");
        else
            std::memcpy(to, from, bytes);
    }

    // Copies from the device after all work in the queue is done.
    void download(void *to, const void *from, std::size_t bytes) const {
        if (queue.device == SILO_CUDA) {
            succeed(wait_(), "cuCtxSynchronize");
            if (bytes != 0)
                succeed(cuda_down_(to, reinterpret_cast<std::uintptr_t>(from), bytes), "cuMemcpyDtoH");
        } else if (queue.device == SILO_ROCM) {
            succeed(wait_(), "hipDeviceSynchronize");
            if (bytes != 0)
                succeed(rocm_copy_(to, from, bytes, 2), "hipMemcpy");
        } else if (bytes != 0) {
            std::memcpy(to, from, bytes);
        }
    }

  private:
    template <class F> static void find(void *library, F &function, const char *symbol) {
        void *address = dlsym(library, symbol);
        if (address == nullptr)
            throw std::runtime_error(std::string("the driver has no ") + symbol);
        std::memcpy(&function, &address, sizeof address);
    }

    static void *library(const char *one, const char *other) {
        void *found = dlopen(one, RTLD_NOW | RTLD_LOCAL);
        if (found == nullptr)
            found = dlopen(other, RTLD_NOW | RTLD_LOCAL);
        if (found == nullptr)
            throw std::runtime_error(std::string("there is no ") + one);
        return found;
    }

    static void succeed(int code, const char *what) {
        if (code != 0)
            throw std::runtime_error(std::string(what) + " gave " + std::to_string(code));
    }

    void open_cuda(int index) {
        void *driver = library("libcuda.so.1", "libcuda.so");
        int (*init)(unsigned), (*count)(int *), (*get)(int *, int), (*retain)(void **, int),
            (*current)(void *);
        find(driver, init, "cuInit");
        find(driver, count, "cuDeviceGetCount");
        find(driver, get, "cuDeviceGet");
        find(driver, retain, "cuDevicePrimaryCtxRetain");
        find(driver, current, "cuCtxSetCurrent");
        find(driver, cuda_allocate_, "cuMemAlloc_v2");
        find(driver, cuda_free_, "cuMemFree_v2");
        find(driver, cuda_up_, "cuMemcpyHtoD_v2");
        find(driver, cuda_down_, "cuMemcpyDtoH_v2");
        find(driver, wait_, "cuCtxSynchronize");
        int devices = 0, device = 0;
        void *context = nullptr;
        succeed(init(0), "cuInit");
        succeed(count(&devices), "cuDeviceGetCount");
        if (index >= devices)
            throw std::runtime_error("there is no such device");
        succeed(get(&device, index), "cuDeviceGet");
        succeed(retain(&context, device), "cuDevicePrimaryCtxRetain");
        succeed(current(context), "cuCtxSetCurrent");
    }

    void open_rocm(int index) {
        void *driver = library("libamdhip64.so", "libamdhip64.so.6");
        int (*count)(int *), (*set)(int);
        find(driver, count, "hipGetDeviceCount");
        find(driver, set, "hipSetDevice");
        find(driver, rocm_allocate_, "hipMalloc");
        find(driver, rocm_free_, "hipFree");
        find(driver, rocm_copy_, "hipMemcpy");
        find(driver, wait_, "hipDeviceSynchronize");
        int devices = 0;
        succeed(count(&devices), "hipGetDeviceCount");
        if (index >= devices)
            throw std::runtime_error("there is no such device");
        succeed(set(index), "hipSetDevice");
    }

    int (*cuda_allocate_)(unsigned long long *, std::size_t) = nullptr;
    int (*cuda_free_)(unsigned long long) = nullptr;
    int (*cuda_up_)(unsigned long long, const void *, std::size_t) = nullptr;
    int (*cuda_down_)(void *, unsigned long long, std::size_t) = nullptr;
    int (*rocm_allocate_)(void **, std::size_t) = nullptr;
    int (*rocm_free_)(void *) = nullptr;
    int (*rocm_copy_)(void *, const void *, std::size_t, int) = nullptr;
    int (*wait_)() = nullptr;
};

struct fill {
    std::int32_t kind; // SILO_FILL_..., or -1 for `bytes`
    std::uint64_t seed;
    silo_fill_params params;
    const unsigned char *bytes; // the contents of all elements, little-endian
};

// An array of a case on the device. Values are in the order of elements, for all strides.
class array {
  public:
    array(const place &where, int element, std::vector<std::int64_t> extents,
          std::vector<std::int64_t> steps, const fill &values)
        : place_(where), element_(element), size_(static_cast<std::size_t>(element & 0xFF) / 8),
          shape_(std::move(extents)), strides_(std::move(steps)) {
        std::int64_t reach = 0;
        for (std::size_t axis = 0; axis < shape_.size(); axis++) {
            count_ *= shape_[axis];
            reach += (shape_[axis] - 1) * strides_[axis];
        }
        std::vector<unsigned char> made(static_cast<std::size_t>(count_) * size_);
        if (values.kind < 0)
            std::memcpy(made.data(), values.bytes, made.size());
        else
            generate(values.kind, values.seed, values.params, made);
        bytes_ = count_ == 0 ? 0 : static_cast<std::size_t>(reach + 1) * size_;
        memory_ = where.allocate(bytes_);
        std::vector<unsigned char> spread(bytes_);
        generate(SILO_FILL_EMPTY, 0, silo_fill_params(), spread);
        for (std::int64_t at = 0; at < count_; at++)
            std::memcpy(&spread[offset(at)], &made[static_cast<std::size_t>(at) * size_], size_);
        where.upload(memory_, spread.data(), bytes_);
    }
    array(const array &) = delete;
    array &operator=(const array &) = delete;
    ~array() { place_.release(memory_); }

    template <class T> T *at() const { return static_cast<T *>(memory_); }
    const std::int64_t *shape() const { return shape_.data(); }
    const std::int64_t *strides() const { return strides_.data(); }
    int rank() const { return static_cast<int>(shape_.size()); }
    int element() const { return element_; }
    std::size_t element_bytes() const { return size_; }
    std::int64_t count() const { return count_; }

    // Copies the current contents; each element is at its `offset`.
    std::vector<unsigned char> read() const {
        std::vector<unsigned char> held(bytes_);
        place_.download(held.data(), memory_, bytes_);
        return held;
    }

    // The offset of an element in bytes.
    std::size_t offset(std::int64_t number) const {
        std::int64_t found = 0;
        for (std::size_t axis = shape_.size(); axis-- > 0;) {
            found += number % shape_[axis] * strides_[axis];
            number /= shape_[axis];
        }
        return static_cast<std::size_t>(found) * size_;
    }

  private:
    void generate(std::int32_t kind, std::uint64_t seed, const silo_fill_params &params,
                  std::vector<unsigned char> &out) const {
        if (silo_generate(kind, element_ >> 8, element_ & 0xFF, seed, 0, out.size() / size_, &params,
                          out.data()) != 0)
            throw std::runtime_error("an array that the generator does not make");
    }

    const place &place_;
    int element_;
    std::size_t size_;
    std::vector<std::int64_t> shape_, strides_;
    std::int64_t count_ = 1;
    std::size_t bytes_ = 0;
    void *memory_ = nullptr;
};

// The expected contents of an array: the bits of all elements, or of those in `numbers`.
struct expected {
    const char *name;
    int element;
    std::size_t count;
    const std::uint64_t *bits;
    const std::int64_t *numbers; // the elements to compare; null: all
    double rtol, atol;
};

// Decodes a small float. own_nan 0: IEEE; 1: no infinities, NaN is all ones; 2: NaN is -0.
inline double small_float(std::uint64_t bits, int exponent_bits, int fraction_bits, int bias,
                          int own_nan) {
    const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const std::uint64_t fraction = bits & ((1U << fraction_bits) - 1);
    const bool negative = (bits >> (exponent_bits + fraction_bits) & 1) != 0;
    const int most = (1 << exponent_bits) - 1;
    double value;
    if (own_nan == 2 && negative && exponent == 0 && fraction == 0)
        return std::nan("");
    if (own_nan == 1 && exponent == most && fraction == (1U << fraction_bits) - 1)
        return std::nan("");
    if (own_nan == 0 && exponent == most)
        value = fraction != 0 ? std::nan("") : HUGE_VAL;
    else if (exponent == 0)
        value = std::ldexp(static_cast<double>(fraction), 1 - bias - fraction_bits);
    else
        value = std::ldexp(static_cast<double>(fraction + (1U << fraction_bits)),
                           exponent - bias - fraction_bits);
    return negative ? -value : value;
}

inline bool is_float(int element) {
    const int code = element >> 8;
    return code == 2 || code == 4 || code > 6;
}

inline double number(int element, std::uint64_t bits) {
    float single;
    double wide;
    const std::uint32_t low = static_cast<std::uint32_t>(bits);
    switch (element) {
    case SILO_FLOAT64:
        std::memcpy(&wide, &bits, sizeof wide);
        return wide;
    case SILO_FLOAT32:
        std::memcpy(&single, &low, sizeof single);
        return static_cast<double>(single);
    case SILO_FLOAT16:
        return small_float(bits, 5, 10, 15, 0);
    case SILO_BFLOAT16:
        return small_float(bits, 8, 7, 127, 0);
    case SILO_FP8_E4M3FN:
        return small_float(bits, 4, 3, 7, 1);
    case SILO_FP8_E4M3FNUZ:
        return small_float(bits, 4, 3, 8, 2);
    case SILO_FP8_E4M3B11FNUZ:
        return small_float(bits, 4, 3, 11, 2);
    case SILO_FP8_E5M2:
        return small_float(bits, 5, 2, 15, 0);
    case SILO_FP8_E5M2FNUZ:
        return small_float(bits, 5, 2, 16, 2);
    default:
        break;
    }
    const int width = element & 0xFF;
    if (element >> 8 == 0) { // a signed integer
        const std::uint64_t sign = std::uint64_t{1} << (width - 1);
        return static_cast<double>(static_cast<std::int64_t>((bits ^ sign) - sign));
    }
    return static_cast<double>(bits);
}

// Returns the number of elements outside of the tolerance, and prints the first of them.
inline std::size_t compare(const array &got, const expected &wanted) {
    const std::vector<unsigned char> held = got.read();
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < wanted.count; at++) {
        const std::int64_t element =
            wanted.numbers != nullptr ? wanted.numbers[at] : static_cast<std::int64_t>(at);
        std::uint64_t bits = 0;
        std::memcpy(&bits, &held[got.offset(element)], got.element_bytes()); // little-endian only
        if (bits == wanted.bits[at] && got.element() == wanted.element)
            continue;
        const double x = number(got.element(), bits), y = number(wanted.element, wanted.bits[at]);
        double error = std::fabs(x - y), limit = wanted.atol + wanted.rtol * std::fabs(y);
        // Two different 64-bit integers may convert to the same double.
        if (error == 0.0 && got.element() == wanted.element && !is_float(got.element()))
            error = 1.0;
        if ((x == y && error != 1.0) || (std::isnan(x) && std::isnan(y)))
            error = 0.0;
        if (!std::isfinite(limit))
            limit = 0.0;
        const bool ok = error <= limit; // false if the error is NaN
        if (!ok && wrong++ == 0)
            std::printf("    %s[%lld] is %.9g and should be %.9g (rtol=%g, atol=%g)\n", wanted.name,
                        static_cast<long long>(element), x, y, wanted.rtol, wanted.atol);
    }
    return wrong;
}

struct test {
    const char *kernel, *label;
    std::size_t (*run)(const place &where); // returns the number of wrong elements
    const char *left_out;                   // why the case cannot be run; null if it can
};

// The number of tests by result. run_on() with `any` skips tests without code for the device.
struct tally {
    int passed = 0, failed = 0, skipped = 0;
};

inline void run_on(const place &where, const test *tests, std::size_t count, bool any,
                   const char *kernel, tally &sum) {
    for (std::size_t at = 0; at < count; at++) {
        const test &one = tests[at];
        if (kernel != nullptr && std::strcmp(kernel, one.kernel) != 0)
            continue;
        std::string said;
        std::size_t wrong = 0;
        bool skipped = one.left_out != nullptr, failed = false;
        try {
            if (skipped)
                said = one.left_out;
            else
                wrong = one.run(where);
        } catch (const silo::error &error) {
            skipped = any && error.code() == SILO_ERROR_NO_VARIANT;
            failed = !skipped;
            said = std::string(error.what()) + (skipped ? "" : "\n") + (skipped ? "" : error.details());
        } catch (const std::exception &error) {
            failed = true;
            said = error.what();
        }
        failed = failed || wrong != 0;
        if (wrong != 0)
            said = std::to_string(wrong) + " elements are wrong";
        (skipped ? sum.skipped : failed ? sum.failed : sum.passed) += 1;
        std::printf("%s %s %s %s%s%s\n", skipped ? "skipped" : failed ? "FAILED " : "ok     ",
                    where.name(), one.kernel, one.label, said.empty() ? "" : ": ", said.c_str());
    }
}

// selftest [cpu|cuda|rocm [INDEX [KERNEL]]]: runs on that device, or on each device that is here.
inline int main_of(int count, char **words, const test *tests, std::size_t tests_count) {
    tally sum;
    const char *kernel = count > 3 ? words[3] : nullptr;
    const int index = count > 2 ? std::atoi(words[2]) : 0;
    const struct {
        const char *name;
        silo::queue queue;
    } all[] = {{"cpu", silo::cpu()},
               {"cuda", silo::cuda(nullptr, index)},
               {"rocm", silo::rocm(nullptr, index)}};
    bool known = count < 2;
    for (const auto &one : all) {
        if (count > 1 && std::strcmp(words[1], one.name) != 0)
            continue;
        known = true;
        try {
            const place where(one.queue);
            run_on(where, tests, tests_count, count < 2, kernel, sum);
        } catch (const std::exception &error) {
            std::printf("%s %s: %s\n", count > 1 ? "FAILED " : "absent ", one.name, error.what());
            sum.failed += count > 1;
        }
    }
    if (!known)
        std::printf("selftest [cpu|cuda|rocm [INDEX [KERNEL]]]\n");
    std::printf("%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped);
    return known && sum.failed == 0 && sum.passed > 0 ? 0 : 1;
}

} // namespace silo_selftest

#endif
