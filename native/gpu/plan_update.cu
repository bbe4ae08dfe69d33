// The first node of a plan's graph: makes the updates of one block (native/core/plan_block.h) to
// the nodes behind it. scripts/plan_updater.py compiles it into native/core/plan_update_code.h.
//
// A warp takes one update at a time: its lanes copy the parameters from pinned host memory, 16
// bytes each, and one of them calls the CUDA runtime. A failed update ends the launch by a trap:
// the nodes behind it would run with the parameters of an earlier replay.
#include "../core/plan_block.h"

#include <cuda_runtime.h>

// Named: what an unnamed one holds gets a number that changes with each compile.
namespace silo_plan {

constexpr uint32_t warps = SILO_PLAN_THREADS / 32;
constexpr uint32_t staged_bytes = 512; // one 16-byte load of each lane

struct Replay {
    const silo_plan_device *plan;
    const uint8_t *block;
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

__device__ __forceinline__ cudaError_t set_parameters(const Replay &replay,
                                                      const silo_plan_device_node &node,
                                                      const uint8_t *from, uint8_t *staged,
                                                      uint32_t lane, cudaError_t code) {
    const silo_plan_run *runs =
        reinterpret_cast<const silo_plan_run *>(replay.plan->runs) + node.first_run;
#pragma unroll 1
    for (uint32_t i = 0; i < node.run_count; i++) {
        const uint32_t end = runs[i].offset + runs[i].bytes;
#pragma unroll 1
        for (uint32_t at = runs[i].offset; at < end;) {
            // Loads are of whole 16 bytes, as the block is.
            const uint32_t begin = at & ~15u;
            const uint32_t stop = end < begin + staged_bytes ? end : begin + staged_bytes;
            __syncwarp();
            if (begin + 16 * lane < stop)
                reinterpret_cast<uint4 *>(staged)[lane] =
                    reinterpret_cast<const uint4 *>(from + begin)[lane];
            __syncwarp();
            if (lane == 0 && code == cudaSuccess)
                code = cudaGraphKernelNodeSetParam(
                    reinterpret_cast<cudaGraphDeviceNode_t>(node.handle), at, staged + (at - begin),
                    stop - at);
            at = stop;
        }
    }
    return code;
}

__device__ __forceinline__ void apply(const Replay &replay, uint32_t index, uint8_t *staged,
                                      uint32_t lane) {
    const silo_plan_update *updates =
        reinterpret_cast<const silo_plan_update *>(replay.block + sizeof(silo_plan_head));
    const silo_plan_update update = updates[index];
    const silo_plan_device_node node =
        reinterpret_cast<const silo_plan_device_node *>(replay.plan->nodes)[update.node];
    const cudaGraphDeviceNode_t handle = reinterpret_cast<cudaGraphDeviceNode_t>(node.handle);
    cudaError_t code = cudaSuccess;
    if (lane == 0 && (update.fields & SILO_PLAN_ENABLED))
        code = cudaGraphKernelNodeSetEnabled(handle, update.enabled != 0);
    if (lane == 0 && code == cudaSuccess && (update.fields & SILO_PLAN_GRID))
        code = cudaGraphKernelNodeSetGridDim(handle,
                                             dim3(update.grid[0], update.grid[1], update.grid[2]));
    if (update.fields & SILO_PLAN_PARAMETERS) // the whole warp, whatever its first lane met
        code = set_parameters(replay, node, replay.block + update.from, staged, lane, code);
    if (code != cudaSuccess)
        fail(replay, code, update.node);
}

} // namespace silo_plan

extern "C" __global__ void __launch_bounds__(SILO_PLAN_THREADS)
    silo_plan_update(silo_plan_device *plan) {
    using namespace silo_plan;
    __shared__ uint4 staged[warps][staged_bytes / 16];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // No block writes `replay` before every block has arrived, and so has read it.
    const uint64_t number = *static_cast<volatile uint64_t *>(&plan->replay);
    const uint8_t *block =
        reinterpret_cast<const uint8_t *>(plan->ring + (number & (plan->slots - 1)) * plan->stride);
    const volatile silo_plan_head *head = reinterpret_cast<const volatile silo_plan_head *>(block);
    const Replay replay = {plan, block, head->trial != 0};
    if (head->replay != number)
        fail(replay, SILO_PLAN_OTHER_REPLAY, 0);
    const uint32_t count = head->count;
#pragma unroll 1
    for (uint32_t i = blockIdx.x * warps + warp; i < count; i += gridDim.x * warps)
        apply(replay, i, reinterpret_cast<uint8_t *>(staged[warp]), lane);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    __threadfence();
    if (atomicAdd(&plan->arrived, 1u) != gridDim.x - 1)
        return;
    plan->arrived = 0;
    plan->replay = number + 1;
    __threadfence_system();
    static_cast<volatile silo_plan_report *>(reinterpret_cast<silo_plan_report *>(plan->report))
        ->done = number + 1;
}
