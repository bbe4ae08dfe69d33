// Primitives of cub for a block and its warps, written from cub's documentation. As in cub:
// - a result that is defined only in the first thread is, in any other thread, that thread's own
//   value;
// - a block must synchronize before it uses a TempStorage again.
#pragma once

#include <silo_cuda.h>

namespace cub {

struct Sum {
    template <class T> constexpr T operator()(const T &a, const T &b) const {
        return T(a + b);
    }
};
struct Max {
    template <class T> constexpr T operator()(const T &a, const T &b) const {
        return a < b ? b : a;
    }
};
struct Min {
    template <class T> constexpr T operator()(const T &a, const T &b) const {
        return b < a ? b : a;
    }
};

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

namespace silo {

using namespace silo_cuda;

// The result of folding values so far; `any` is false before the first value.
template <class T> struct Fold {
    T value{};
    bool any = false;

    template <class F> void add(const T &next, F &function) {
        value = any ? T(function(value, next)) : next;
        any = true;
    }
};

// Returns the existing lanes of the caller's logical warp, which has `count` threads.
inline unsigned lanes_of(unsigned count) {
    const unsigned own = lane_now(), first = own / count * count;
    const unsigned all = blockDim.x * blockDim.y * blockDim.z - (thread_rank() - own);
    const unsigned end = first + count < 32 ? first + count : 32, last = end < all ? end : all;
    return (last == 32 ? ~0u : (1u << last) - 1) & ~((1u << first) - 1);
}

template <unsigned threads> inline void check_block(Place place) {
    if (blockDim.x * blockDim.y * blockDim.z != threads)
        stop("the block has another number of threads than the primitive of cub", place);
}

// The memory of a block's primitive: a value for each warp, and a prefix.
// The type Parts is trivial, because it must be usable in shared memory and in unions.
template <class T, unsigned warps> struct Parts {
    alignas(T) char bytes[sizeof(T) * (warps + 1)];

    T &operator[](unsigned index) {
        return reinterpret_cast<T *>(bytes)[index];
    }
};

} // namespace silo

// ---- Primitives of a warp

template <class T, int LOGICAL_WARP_THREADS = 32, int = 0> class WarpReduce {
    static_assert(LOGICAL_WARP_THREADS >= 1 && LOGICAL_WARP_THREADS <= 32);

  public:
    struct TempStorage {};
    explicit WarpReduce(TempStorage &) {}

    template <class F> SILO_LANES T Reduce(T input, F function, int valid_items, SILO_HERE) {
        constexpr unsigned count = LOGICAL_WARP_THREADS;
        const unsigned own = silo_cuda::lane_now(), first = own / count * count;
        const unsigned mask = silo::lanes_of(count);
        const silo_threads::Brought<T> all =
            silo_cuda::exchange(silo_cuda::Kind::reduce, mask, input, place);
        silo::Fold<T> result;
        for (unsigned lane = first; lane < first + count && lane < 32; lane++)
            if (all.has(lane) && mask >> lane & 1u && int(lane - first) < valid_items)
                result.add(all[lane], function);
        return own == first && result.any ? result.value : input;
    }
    template <class F> SILO_LANES T Reduce(T input, F function, SILO_HERE) {
        return Reduce(input, function, LOGICAL_WARP_THREADS, place);
    }
    SILO_LANES T Sum(T input, SILO_HERE) {
        return Reduce(input, cub::Sum(), LOGICAL_WARP_THREADS, place);
    }
    SILO_LANES T Sum(T input, int valid_items, SILO_HERE) {
        return Reduce(input, cub::Sum(), valid_items, place);
    }
};

template <class T, int LOGICAL_WARP_THREADS = 32, int = 0> class WarpScan {
    static_assert(LOGICAL_WARP_THREADS >= 1 && LOGICAL_WARP_THREADS <= 32);

    // Returns the fold of the values of all lower lanes, and also of the caller's own value if
    // `inclusive`. Sets `aggregate` to the fold of the values of all lanes.
    template <bool inclusive, class F>
    SILO_LANES silo::Fold<T> scan(T input, F &function, T &aggregate, silo_threads::Place place) {
        const unsigned own = silo_cuda::lane_now(), mask = silo::lanes_of(LOGICAL_WARP_THREADS);
        const silo_threads::Brought<T> all =
            silo_cuda::exchange(silo_cuda::Kind::reduce, mask, input, place);
        silo::Fold<T> before, total;
        for (unsigned rest = mask & all.active(); rest; rest &= rest - 1) {
            const unsigned lane = unsigned(__builtin_ctz(rest));
            total.add(all[lane], function);
            if (lane < own || (inclusive && lane == own))
                before.add(all[lane], function);
        }
        aggregate = total.value;
        return before;
    }

  public:
    struct TempStorage {};
    explicit WarpScan(TempStorage &) {}

    template <class F>
    SILO_LANES void InclusiveScan(T input, T &output, F function, T &aggregate, SILO_HERE) {
        output = scan<true>(input, function, aggregate, place).value;
    }
    template <class F> SILO_LANES void InclusiveScan(T input, T &output, F function, SILO_HERE) {
        T all;
        InclusiveScan(input, output, function, all, place);
    }
    SILO_LANES void InclusiveSum(T input, T &output, SILO_HERE) {
        InclusiveScan(input, output, cub::Sum(), place);
    }
    SILO_LANES void InclusiveSum(T input, T &output, T &aggregate, SILO_HERE) {
        InclusiveScan(input, output, cub::Sum(), aggregate, place);
    }
    template <class F>
    SILO_LANES void ExclusiveScan(T input, T &output, T initial, F function, T &aggregate,
                                  SILO_HERE) {
        const silo::Fold<T> before = scan<false>(input, function, aggregate, place);
        output = before.any ? T(function(initial, before.value)) : initial;
    }
    template <class F>
    SILO_LANES void ExclusiveScan(T input, T &output, T initial, F function, SILO_HERE) {
        T all;
        ExclusiveScan(input, output, initial, function, all, place);
    }
    SILO_LANES void ExclusiveSum(T input, T &output, SILO_HERE) {
        ExclusiveScan(input, output, T{}, cub::Sum(), place);
    }
    SILO_LANES void ExclusiveSum(T input, T &output, T &aggregate, SILO_HERE) {
        ExclusiveScan(input, output, T{}, cub::Sum(), aggregate, place);
    }
    SILO_LANES T Broadcast(T input, unsigned from, SILO_HERE) {
        const unsigned own = silo_cuda::lane_now();
        const unsigned first = own / LOGICAL_WARP_THREADS * LOGICAL_WARP_THREADS;
        return silo_cuda::take(silo::lanes_of(LOGICAL_WARP_THREADS), input, int(first + from),
                               place);
    }
};

// ---- Primitives of a block

template <class T, int BLOCK_DIM_X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockReduce {
    static constexpr unsigned threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;
    static constexpr unsigned warps = (threads + 31) / 32;

  public:
    struct TempStorage : silo::Parts<T, warps> {};

  private:
    TempStorage &parts;
    static TempStorage &own() {
        __shared__ TempStorage storage;
        return storage;
    }

  public:
    BlockReduce() : parts(own()) {}
    explicit BlockReduce(TempStorage &storage) : parts(storage) {}

    template <class F> SILO_LANES T Reduce(T input, F function, int valid_items, SILO_HERE) {
        silo::check_block<threads>(place);
        const unsigned rank = silo_cuda::thread_rank(), first = rank / 32 * 32;
        typename WarpReduce<T>::TempStorage none;
        const T part = WarpReduce<T>(none).Reduce(input, function, valid_items - int(first), place);
        if (rank == first && int(first) < valid_items)
            parts[rank / 32] = part;
        __syncthreads(place);
        if (rank != 0 || valid_items < 1)
            return input;
        silo::Fold<T> result;
        for (unsigned warp = 0; warp < warps && int(warp * 32) < valid_items; warp++)
            result.add(parts[warp], function);
        return result.value;
    }
    template <class F> SILO_LANES T Reduce(T input, F function, SILO_HERE) {
        return Reduce(input, function, int(threads), place);
    }
    template <int count, class F> SILO_LANES T Reduce(T (&inputs)[count], F function, SILO_HERE) {
        T part = inputs[0];
        for (int at = 1; at < count; at++)
            part = function(part, inputs[at]);
        return Reduce(part, function, int(threads), place);
    }
    SILO_LANES T Sum(T input, SILO_HERE) {
        return Reduce(input, cub::Sum(), int(threads), place);
    }
    SILO_LANES T Sum(T input, int valid_items, SILO_HERE) {
        return Reduce(input, cub::Sum(), valid_items, place);
    }
    template <int count> SILO_LANES T Sum(T (&inputs)[count], SILO_HERE) {
        return Reduce(inputs, cub::Sum(), place);
    }
};

template <class T, int BLOCK_DIM_X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockScan {
    static constexpr unsigned threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;
    static constexpr unsigned warps = (threads + 31) / 32;

  public:
    struct TempStorage : silo::Parts<T, warps> {};

  private:
    TempStorage &parts;
    static TempStorage &own() {
        __shared__ TempStorage storage;
        return storage;
    }

    // Returns the fold of the values of all threads with a lower rank than the caller. Sets
    // `aggregate` to the fold of the whole block.
    template <class F>
    SILO_LANES silo::Fold<T> before(T input, F &function, T &aggregate, silo_threads::Place place) {
        silo::check_block<threads>(place);
        const unsigned rank = silo_cuda::thread_rank(), own_warp = rank / 32;
        const unsigned mask = silo::lanes_of(32);
        const silo_threads::Brought<T> all =
            silo_cuda::exchange(silo_cuda::Kind::reduce, mask, input, place);
        silo::Fold<T> within, total, result;
        for (unsigned rest = mask & all.active(); rest; rest &= rest - 1) {
            const unsigned lane = unsigned(__builtin_ctz(rest));
            if (lane < silo_cuda::lane_now())
                within.add(all[lane], function);
            total.add(all[lane], function);
        }
        if (silo_cuda::lane_now() == 0)
            parts[own_warp] = total.value;
        __syncthreads(place);
        silo::Fold<T> block;
        for (unsigned warp = 0; warp < warps; warp++) {
            if (warp < own_warp)
                result.add(parts[warp], function);
            block.add(parts[warp], function);
        }
        if (within.any)
            result.add(within.value, function);
        aggregate = block.value;
        return result;
    }

    // Calls the callback in the threads of the first warp; returns, in all threads, the prefix that
    // the callback returned in thread 0.
    template <class Callback>
    SILO_LANES T prefix_of(Callback &callback, T aggregate, silo_threads::Place place) {
        if (silo_cuda::thread_rank() < 32) {
            const T prefix = callback(aggregate);
            if (silo_cuda::thread_rank() == 0)
                parts[warps] = prefix;
        }
        __syncthreads(place);
        return parts[warps];
    }

    template <int count, class F> static T folded(T (&inputs)[count], F &function) {
        T part = inputs[0];
        for (int at = 1; at < count; at++)
            part = function(part, inputs[at]);
        return part;
    }
    // Writes the scan of one thread's values; `at` is the fold of all values before them.
    template <bool inclusive, int count, class F>
    static void spread(T (&inputs)[count], T (&outputs)[count], silo::Fold<T> at, F &function) {
        for (int index = 0; index < count; index++) {
            const T value = inputs[index];
            if (!inclusive && at.any)
                outputs[index] = at.value;
            at.add(value, function);
            if (inclusive)
                outputs[index] = at.value;
        }
    }
    template <bool inclusive, int count, class F>
    SILO_LANES void scan(T (&inputs)[count], T (&outputs)[count], const T *initial, F &function,
                         T &aggregate, silo_threads::Place place) {
        silo::Fold<T> at;
        if (initial)
            at.add(*initial, function);
        const silo::Fold<T> found = before(folded(inputs, function), function, aggregate, place);
        if (found.any)
            at.add(found.value, function);
        spread<inclusive>(inputs, outputs, at, function);
    }
    template <bool inclusive, int count, class F, class Callback>
    SILO_LANES void scan_after(T (&inputs)[count], T (&outputs)[count], F &function,
                               Callback &callback, silo_threads::Place place) {
        T aggregate;
        const silo::Fold<T> found = before(folded(inputs, function), function, aggregate, place);
        silo::Fold<T> at;
        at.add(prefix_of(callback, aggregate, place), function);
        if (found.any)
            at.add(found.value, function);
        spread<inclusive>(inputs, outputs, at, function);
    }

  public:
    BlockScan() : parts(own()) {}
    explicit BlockScan(TempStorage &storage) : parts(storage) {}

    // Defines one of cub's scans, for several values in each thread and for one value.
#define SILO_SCANS(name, inclusive, parameters, initial, arguments)                                \
    template <int count, class F>                                                                  \
    SILO_LANES void name(T(&inputs)[count], T(&outputs)[count], parameters F function,             \
                         T &aggregate, SILO_HERE) {                                                \
        scan<inclusive>(inputs, outputs, initial, function, aggregate, place);                     \
    }                                                                                              \
    template <int count, class F>                                                                  \
    SILO_LANES void name(T(&inputs)[count], T(&outputs)[count], parameters F function,             \
                         SILO_HERE) {                                                              \
        T all;                                                                                     \
        scan<inclusive>(inputs, outputs, initial, function, all, place);                           \
    }                                                                                              \
    template <class F>                                                                             \
    SILO_LANES void name(T input, T &output, parameters F function, T &aggregate, SILO_HERE) {     \
        T inputs[1] = {input}, outputs[1] = {output};                                              \
        scan<inclusive>(inputs, outputs, initial, function, aggregate, place);                     \
        output = outputs[0];                                                                       \
    }                                                                                              \
    template <class F>                                                                             \
    SILO_LANES void name(T input, T &output, parameters F function, SILO_HERE) {                   \
        T all;                                                                                     \
        name(input, output, arguments function, all, place);                                       \
    }
#define SILO_INITIAL T initial_value,
#define SILO_GIVEN initial_value,
#define SILO_NONE
    SILO_SCANS(InclusiveScan, true, SILO_NONE, nullptr, SILO_NONE)
    SILO_SCANS(ExclusiveScan, false, SILO_NONE, nullptr, SILO_NONE)
    SILO_SCANS(ExclusiveScan, false, SILO_INITIAL, &initial_value, SILO_GIVEN)
#undef SILO_SCANS
#undef SILO_INITIAL
#undef SILO_GIVEN
#undef SILO_NONE

    // Scans whose prefix a callback computes. As in cub, the callback's type is a template
    // parameter; a last argument of type T selects the overload that returns an aggregate instead.
#define SILO_AFTER(name, inclusive)                                                                \
    template <int count, class F, class Callback>                                                  \
    SILO_LANES void name(T(&inputs)[count], T(&outputs)[count], F function, Callback &callback,    \
                         SILO_HERE) {                                                              \
        scan_after<inclusive>(inputs, outputs, function, callback, place);                         \
    }                                                                                              \
    template <class F, class Callback>                                                             \
    SILO_LANES void name(T input, T &output, F function, Callback &callback, SILO_HERE) {          \
        T inputs[1] = {input}, outputs[1] = {output};                                              \
        scan_after<inclusive>(inputs, outputs, function, callback, place);                         \
        output = outputs[0];                                                                       \
    }
    SILO_AFTER(InclusiveScan, true)
    SILO_AFTER(ExclusiveScan, false)
#undef SILO_AFTER

#define SILO_SUMS(name, scan_name, ...)                                                            \
    SILO_LANES void name(T input, T &output, SILO_HERE) {                                          \
        scan_name(input, output, __VA_ARGS__ cub::Sum(), place);                                   \
    }                                                                                              \
    SILO_LANES void name(T input, T &output, T &aggregate, SILO_HERE) {                            \
        scan_name(input, output, __VA_ARGS__ cub::Sum(), aggregate, place);                        \
    }                                                                                              \
    template <class Callback>                                                                      \
    SILO_LANES void name(T input, T &output, Callback &callback, SILO_HERE) {                      \
        scan_name(input, output, cub::Sum(), callback, place);                                     \
    }                                                                                              \
    template <int count> SILO_LANES void name(T(&inputs)[count], T(&outputs)[count], SILO_HERE) {  \
        scan_name(inputs, outputs, __VA_ARGS__ cub::Sum(), place);                                 \
    }                                                                                              \
    template <int count>                                                                           \
    SILO_LANES void name(T(&inputs)[count], T(&outputs)[count], T &aggregate, SILO_HERE) {         \
        scan_name(inputs, outputs, __VA_ARGS__ cub::Sum(), aggregate, place);                      \
    }                                                                                              \
    template <int count, class Callback>                                                           \
    SILO_LANES void name(T(&inputs)[count], T(&outputs)[count], Callback &callback, SILO_HERE) {   \
        scan_name(inputs, outputs, cub::Sum(), callback, place);                                   \
    }
    SILO_SUMS(InclusiveSum, InclusiveScan, )
    SILO_SUMS(ExclusiveSum, ExclusiveScan, T{}, )
#undef SILO_SUMS
};

// ---- Loads and stores: a thread gets consecutive values, except with the striped algorithm

template <class T, int BLOCK_DIM_X, int ITEMS, BlockLoadAlgorithm algorithm = BLOCK_LOAD_DIRECT,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockLoad {
    static constexpr unsigned threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;
    static int place_of(int index) {
        const int rank = int(silo_cuda::thread_rank());
        return algorithm == BLOCK_LOAD_STRIPED ? index * int(threads) + rank : rank * ITEMS + index;
    }

  public:
    struct TempStorage {};
    BlockLoad() {}
    explicit BlockLoad(TempStorage &) {}

    template <class I> void Load(I from, T (&items)[ITEMS]) {
        for (int index = 0; index < ITEMS; index++)
            items[index] = from[place_of(index)];
    }
    template <class I> void Load(I from, T (&items)[ITEMS], int valid_items) {
        for (int index = 0; index < ITEMS; index++)
            if (place_of(index) < valid_items)
                items[index] = from[place_of(index)];
    }
    template <class I, class D> void Load(I from, T (&items)[ITEMS], int valid_items, D other) {
        for (int index = 0; index < ITEMS; index++)
            items[index] = place_of(index) < valid_items ? T(from[place_of(index)]) : T(other);
    }
};

template <class T, int BLOCK_DIM_X, int ITEMS, BlockStoreAlgorithm algorithm = BLOCK_STORE_DIRECT,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockStore {
    static constexpr unsigned threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

  public:
    struct TempStorage {};
    BlockStore() {}
    explicit BlockStore(TempStorage &) {}

    template <class I> void Store(I to, T (&items)[ITEMS]) {
        Store(to, items, int(threads) * ITEMS);
    }
    template <class I> void Store(I to, T (&items)[ITEMS], int valid_items) {
        const int rank = int(silo_cuda::thread_rank());
        for (int index = 0; index < ITEMS; index++) {
            const int at = algorithm == BLOCK_STORE_STRIPED ? index * int(threads) + rank
                                                            : rank * ITEMS + index;
            if (at < valid_items)
                to[at] = items[index];
        }
    }
};

// ---- Primitives that are not supported

#define SILO_NO_CUB(name)                                                                          \
    template <class T, auto A = 0, auto B = 0, class V = void, auto... C>                          \
    struct __attribute__((unavailable("cub::" #name " does not run on the CPU"))) name;
SILO_NO_CUB(BlockRadixSort)
SILO_NO_CUB(BlockMergeSort)
SILO_NO_CUB(BlockExchange)
SILO_NO_CUB(BlockHistogram)
SILO_NO_CUB(BlockDiscontinuity)
SILO_NO_CUB(BlockAdjacentDifference)
SILO_NO_CUB(BlockShuffle)
SILO_NO_CUB(WarpExchange)
SILO_NO_CUB(WarpMergeSort)
#undef SILO_NO_CUB

} // namespace cub
