// The kernel of the first node of a plan's CUDA graph. It sets the grids and parameters of the
// nodes after it, and enables or disables these nodes. The host writes the updates for a replay
// into one block of a ring in pinned memory (native/core/plan_block.h). scripts/plan_updater.py
// compiles this file into native/core/plan_update_code.h.
//
// The kernel is launched with a single block of threads, because the device runs the blocks of a
// kernel that updates nodes one after the other: 13 blocks took 46 us longer than one on an H200
// with a driver of CUDA 13. First all threads copy the host's block, the list of nodes, and the
// list of runs (ranges of adjacent parameters of a node) into shared memory, so that a replay waits
// for the bus only once; then each thread updates its nodes. If an update fails, the launch ends
// with a trap, because the nodes after it would run with the parameters of an earlier replay.
#include "../core/plan_block.h"

#include <cuda_runtime.h>

// Named, because symbols in an unnamed namespace get a number that changes with each compile.
namespace silo_plan {

constexpr uint32_t window_bytes = 24576; // bytes of the host's block in shared memory
// The most nodes and runs that are copied to shared memory; longer arrays are read in place.
constexpr uint32_t most_nodes = 512, most_runs = 512;

struct Replay {
    const silo_plan_device *plan;
    const uint8_t *block; // the replay's block, in pinned host memory
    const uint8_t *window;
    uint32_t begin; // offset in the block of its part that `window` holds
    const silo_plan_device_node *nodes;
    const silo_plan_run *runs;
    bool trial;
};

__device__ __noinline__ void fail(const Replay &replay, uint32_t code, uint32_t node) {
    volatile silo_plan_report *report =
        reinterpret_cast<volatile silo_plan_report *>(replay.plan->report);
    report->node = node;
    __threadfence_system();
    report->code = code;
    __threadfence_system();
    if (!replay.trial)
        __trap();
}

// Copies a multiple of 16 bytes with all threads.
__device__ __forceinline__ void copy(void *to, const void *from, uint32_t bytes) {
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < bytes / 16; i += SILO_PLAN_THREADS)
        static_cast<uint4 *>(to)[i] = __ldcv(static_cast<const uint4 *>(from) + i);
}

// Sets those parameters of a node that are in `window`, the part of the block in shared memory.
__device__ __forceinline__ cudaError_t set_parameters(const Replay &replay,
                                                      const silo_plan_device_node &node,
                                                      uint32_t from) {
    const silo_plan_run *runs = replay.runs + node.first_run;
    const uint32_t window_end = replay.begin + window_bytes;
    cudaError_t code = cudaSuccess;
#pragma unroll 1
    for (uint32_t i = 0; i < node.run_count && code == cudaSuccess; i++) {
        const uint32_t first = from + runs[i].offset, end = first + runs[i].bytes;
        const uint32_t begin = first < replay.begin ? replay.begin : first;
        const uint32_t stop = end < window_end ? end : window_end;
        if (begin < stop)
            code = cudaGraphKernelNodeSetParam(reinterpret_cast<cudaGraphDeviceNode_t>(node.handle),
                                               begin - from, replay.window + (begin - replay.begin),
                                               stop - begin);
    }
    return code;
}

__device__ __forceinline__ void apply(const Replay &replay, uint32_t index) {
    const uint32_t at = static_cast<uint32_t>(sizeof(silo_plan_head)) +
                        index * static_cast<uint32_t>(sizeof(silo_plan_update));
    const bool staged = replay.begin == 0 && at + sizeof(silo_plan_update) <= window_bytes;
    const silo_plan_update update = *reinterpret_cast<const silo_plan_update *>(
        (staged ? replay.window : replay.block) + at);
    const silo_plan_device_node node = replay.nodes[update.node];
    const cudaGraphDeviceNode_t handle = reinterpret_cast<cudaGraphDeviceNode_t>(node.handle);
    cudaError_t code = cudaSuccess;
    if (replay.begin == 0 && (update.fields & SILO_PLAN_ENABLED))
        code = cudaGraphKernelNodeSetEnabled(handle, update.enabled != 0);
    if (replay.begin == 0 && code == cudaSuccess && (update.fields & SILO_PLAN_GRID))
        code = cudaGraphKernelNodeSetGridDim(handle,
                                             dim3(update.grid[0], update.grid[1], update.grid[2]));
    if (code == cudaSuccess && (update.fields & SILO_PLAN_PARAMETERS))
        code = set_parameters(replay, node, update.from);
    if (code != cudaSuccess)
        fail(replay, code, update.node);
}

} // namespace silo_plan

extern "C" __global__ void __launch_bounds__(SILO_PLAN_THREADS)
    silo_plan_update(silo_plan_device *plan) {
    using namespace silo_plan;
    __shared__ uint4 window[window_bytes / 16];
    __shared__ uint4 nodes[most_nodes * sizeof(silo_plan_device_node) / 16];
    __shared__ uint4 runs[most_runs * sizeof(silo_plan_run) / 16];
    const uint64_t number = plan->replay, stride = plan->stride;
    const uint32_t node_count = plan->node_count, run_count = plan->run_count;
    Replay replay = {plan,
                     reinterpret_cast<const uint8_t *>(plan->ring +
                                                       (number & (plan->slots - 1)) * stride),
                     reinterpret_cast<const uint8_t *>(window),
                     0,
                     reinterpret_cast<const silo_plan_device_node *>(plan->nodes),
                     reinterpret_cast<const silo_plan_run *>(plan->runs),
                     false};
    // The block is copied before its head is read, so that a thread waits for the bus only once.
    copy(window, replay.block, stride < window_bytes ? (uint32_t)stride : window_bytes);
    if (node_count <= most_nodes) {
        copy(nodes, replay.nodes, node_count * (uint32_t)sizeof(silo_plan_device_node));
        replay.nodes = reinterpret_cast<const silo_plan_device_node *>(nodes);
    }
    if (run_count <= most_runs) {
        // Reading past the end, to a multiple of 16 bytes, is safe: `runs` is the last array in the
        // plan's memory, whose size is a multiple of 16.
        copy(runs, replay.runs, (run_count * (uint32_t)sizeof(silo_plan_run) + 15) / 16 * 16);
        replay.runs = reinterpret_cast<const silo_plan_run *>(runs);
    }
    __syncthreads();
    const silo_plan_head head = *reinterpret_cast<const silo_plan_head *>(window);
    replay.trial = head.trial != 0;
    const uint32_t count = head.replay == number ? head.count : 0;
    if (head.replay != number && threadIdx.x == 0)
        fail(replay, SILO_PLAN_OTHER_REPLAY, 0);
    for (;;) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < count; i += SILO_PLAN_THREADS)
            apply(replay, i);
        replay.begin += window_bytes;
        __syncthreads();
        if (replay.begin >= head.bytes)
            break;
        const uint32_t rest = head.bytes - replay.begin;
        copy(window, replay.block + replay.begin,
             rest < window_bytes ? (rest + 15) / 16 * 16 : window_bytes);
        __syncthreads();
    }
    if (threadIdx.x != 0)
        return;
    // All threads have read the block before the barrier, so the host may write it again. The next
    // launch of this kernel begins after this one has ended.
    plan->replay = number + 1;
    static_cast<volatile silo_plan_report *>(reinterpret_cast<silo_plan_report *>(plan->report))
        ->done = number + 1;
}
