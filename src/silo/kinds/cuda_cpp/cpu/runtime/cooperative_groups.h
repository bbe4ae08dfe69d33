// Cooperative groups: a block, and the lanes of a warp.
#pragma once

#include <silo_cuda.h>

namespace cooperative_groups {

struct grid_group {
#ifdef SILO_CUDA_COOPERATIVE
    struct arrival_token {};
    SILO_LANES void sync(SILO_HERE) const {
        silo_threads::wait_at_grid(silo_cuda::all_memory, place);
    }
    arrival_token barrier_arrive() const {
        return {};
    }
    SILO_LANES void barrier_wait(arrival_token &&, SILO_HERE) const {
        silo_threads::wait_at_grid(silo_cuda::all_memory, place);
    }
    bool is_valid() const {
        return true;
    }
#else
    void sync() const __attribute__((unavailable("a barrier of the grid (grid_group::sync) without "
                                                 "cooperative=True does not run on the CPU")));
    bool is_valid() const {
        return false;
    }
#endif
    dim3 block_index() const {
        return blockIdx;
    }
    dim3 dim_blocks() const {
        return gridDim;
    }
    unsigned long long num_blocks() const {
        return (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
    }
    unsigned long long block_rank() const {
        return blockIdx.x + (unsigned long long)gridDim.x *
                                (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
    }
    dim3 group_dim() const {
        return gridDim;
    }
    unsigned long long num_threads() const {
        return num_blocks() * (blockDim.x * blockDim.y * blockDim.z);
    }
    unsigned long long size() const {
        return num_threads();
    }
    unsigned long long thread_rank() const {
        return block_rank() * (blockDim.x * blockDim.y * blockDim.z) + silo_cuda::thread_rank();
    }
};
inline grid_group this_grid() {
    return {};
}

struct thread_group {
    unsigned mask; // the lanes of the group; 0 for a whole block
    SILO_LANES void sync(SILO_HERE) const {
        if (mask)
            silo_cuda::meet_lanes(silo_cuda::Kind::sync, mask, silo_cuda::all_memory, place);
        else
            __syncthreads(place);
    }
    unsigned size() const {
        return mask ? unsigned(__popc(mask)) : blockDim.x * blockDim.y * blockDim.z;
    }
    unsigned num_threads() const {
        return size();
    }
    unsigned thread_rank() const {
        return mask ? unsigned(__popc(mask & ((1u << silo_cuda::lane_now()) - 1)))
                    : silo_cuda::thread_rank();
    }
};

struct thread_block : thread_group {
    constexpr thread_block() : thread_group{0} {}
    static unsigned size() {
        return blockDim.x * blockDim.y * blockDim.z;
    }
    static unsigned num_threads() {
        return size();
    }
    static unsigned thread_rank() {
        return silo_cuda::thread_rank();
    }
    static dim3 group_index() {
        return blockIdx;
    }
    static dim3 thread_index() {
        return threadIdx;
    }
    static dim3 group_dim() {
        return blockDim;
    }
    static dim3 dim_threads() {
        return blockDim;
    }
};
inline thread_block this_thread_block() {
    return {};
}
// Memory for tiles larger than a warp. Such tiles are not supported on the CPU.
template <unsigned threads> struct block_tile_memory {};
template <unsigned threads> inline thread_block this_thread_block(block_tile_memory<threads> &) {
    return {};
}

// A group of the lanes in a mask; the lowest lane has rank 0.
struct lanes_group : thread_group {
    constexpr lanes_group(unsigned lanes) : thread_group{lanes} {}
    unsigned lane_of(unsigned rank) const {
        unsigned rest = mask;
        while (rank--)
            rest &= rest - 1;
        return rest ? unsigned(__ffs(int(rest))) - 1 : 32;
    }
    template <class T> SILO_LANES T shfl(T value, int rank, SILO_HERE) const {
        return silo_cuda::take(mask, value, int(lane_of(unsigned(rank) % size())), place);
    }
    template <class T> SILO_LANES T shfl_up(T value, unsigned delta, SILO_HERE) const {
        const unsigned rank = thread_rank();
        return silo_cuda::take(mask, value, int(lane_of(rank < delta ? rank : rank - delta)),
                               place);
    }
    template <class T> SILO_LANES T shfl_down(T value, unsigned delta, SILO_HERE) const {
        const unsigned rank = thread_rank();
        return silo_cuda::take(mask, value,
                               int(lane_of(rank + delta < size() ? rank + delta : rank)), place);
    }
    template <class T> SILO_LANES T shfl_xor(T value, unsigned other, SILO_HERE) const {
        const unsigned rank = thread_rank() ^ other;
        return silo_cuda::take(mask, value, int(lane_of(rank < size() ? rank : thread_rank())),
                               place);
    }
    SILO_LANES int any(int predicate, SILO_HERE) const {
        return __any_sync(mask, predicate, place);
    }
    SILO_LANES int all(int predicate, SILO_HERE) const {
        return __all_sync(mask, predicate, place);
    }
    // Returns a mask by rank: bit r is set if the lane of rank r in this group is in `lanes`.
    unsigned by_rank(unsigned lanes) const {
        unsigned bits = 0, rank = 0;
        for (unsigned rest = mask; rest; rest &= rest - 1, rank++)
            bits |= (lanes >> unsigned(__builtin_ctz(rest)) & 1u) << rank;
        return bits;
    }
    SILO_LANES unsigned ballot(int predicate, SILO_HERE) const {
        return by_rank(__ballot_sync(mask, predicate, place));
    }
    template <class T> SILO_LANES unsigned match_any(T value, SILO_HERE) const {
        return by_rank(__match_any_sync(mask, value, place));
    }
    template <class T> SILO_LANES unsigned match_all(T value, int &predicate, SILO_HERE) const {
        return by_rank(__match_all_sync(mask, value, &predicate, place));
    }
};

struct coalesced_group : lanes_group {
    explicit coalesced_group(unsigned lanes) : lanes_group(lanes) {}
    unsigned meta_group_size() const {
        return 1;
    }
    unsigned meta_group_rank() const {
        return 0;
    }
};
SILO_LANES coalesced_group coalesced_threads(SILO_HERE) {
    return coalesced_group(__activemask(place));
}

template <unsigned count, class Parent = void> struct thread_block_tile : lanes_group {
    static_assert(count && count <= 32 && !(count & (count - 1)),
                  "a tile of more than 32 threads does not run on the CPU");
    thread_block_tile()
        : lanes_group((count == 32 ? ~0u : (1u << count % 32) - 1)
                      << silo_cuda::thread_rank() % 32 / count * count) {}
    template <class Other>
    thread_block_tile(const thread_block_tile<count, Other> &) : thread_block_tile() {}
    static constexpr unsigned size() {
        return count;
    }
    static constexpr unsigned num_threads() {
        return count;
    }
    static unsigned thread_rank() {
        return silo_cuda::thread_rank() % count;
    }
    static unsigned meta_group_rank() {
        return silo_cuda::thread_rank() / count;
    }
    static unsigned meta_group_size() {
        return (blockDim.x * blockDim.y * blockDim.z + count - 1) / count;
    }
    template <class T> SILO_LANES T shfl(T value, int rank, SILO_HERE) const {
        return __shfl_sync(mask, value, rank, int(count), place);
    }
    template <class T> SILO_LANES T shfl_up(T value, unsigned delta, SILO_HERE) const {
        return __shfl_up_sync(mask, value, delta, int(count), place);
    }
    template <class T> SILO_LANES T shfl_down(T value, unsigned delta, SILO_HERE) const {
        return __shfl_down_sync(mask, value, delta, int(count), place);
    }
    template <class T> SILO_LANES T shfl_xor(T value, unsigned other, SILO_HERE) const {
        return __shfl_xor_sync(mask, value, int(other), int(count), place);
    }
};
template <unsigned count, class Parent>
inline thread_block_tile<count, Parent> tiled_partition(const Parent &) {
    return {};
}
inline lanes_group tiled_partition(const thread_block &, unsigned count) {
    return {count == 32
                ? ~0u
                : ((1u << count % 32) - 1) << silo_cuda::thread_rank() % 32 / count * count};
}
SILO_LANES coalesced_group labeled_partition(const lanes_group &group, int label, SILO_HERE) {
    return coalesced_group(__match_any_sync(group.mask, label, place));
}
SILO_LANES coalesced_group binary_partition(const lanes_group &group, bool label, SILO_HERE) {
    return coalesced_group(__match_any_sync(group.mask, int(label), place));
}

template <class Group> SILO_LANES void sync(const Group &group, SILO_HERE) {
    group.sync(place);
}
template <class Group> inline unsigned thread_rank(const Group &group) {
    return group.thread_rank();
}
template <class Group> inline unsigned group_size(const Group &group) {
    return group.size();
}

#define SILO_FUNCTION(name, expression)                                                            \
    template <class T = void> struct name {                                                        \
        T operator()(T a, T b) const {                                                             \
            return T(expression);                                                                  \
        }                                                                                          \
    };
SILO_FUNCTION(plus, a + b)
SILO_FUNCTION(less, (a < b ? a : b))
SILO_FUNCTION(greater, (a > b ? a : b))
SILO_FUNCTION(bit_and, a &b)
SILO_FUNCTION(bit_or, a | b)
SILO_FUNCTION(bit_xor, a ^ b)

template <class T, class F>
SILO_LANES T reduce(const lanes_group &group, T value, F function, SILO_HERE) {
    return silo_cuda::combine(group.mask, value, place, function);
}
template <bool inclusive, class T, class F>
SILO_LANES T scan(const lanes_group &group, T value, F function, silo_threads::Place place) {
    const silo_threads::Brought<T> all =
        silo_cuda::exchange(silo_cuda::Kind::reduce, group.mask, value, place);
    const unsigned own = silo_cuda::lane_now();
    T result = T();
    bool any = false;
    for (unsigned rest = all.active(); rest; rest &= rest - 1) {
        const unsigned lane = unsigned(__builtin_ctz(rest));
        if (lane + !inclusive > own)
            break;
        result = any ? function(result, all[lane]) : all[lane];
        any = true;
    }
    return result;
}
template <class T, class F = plus<T>>
SILO_LANES T inclusive_scan(const lanes_group &group, T value, F function = F(), SILO_HERE) {
    return scan<true>(group, value, function, place);
}
template <class T, class F = plus<T>>
SILO_LANES T exclusive_scan(const lanes_group &group, T value, F function = F(), SILO_HERE) {
    return scan<false>(group, value, function, place);
}

} // namespace cooperative_groups
