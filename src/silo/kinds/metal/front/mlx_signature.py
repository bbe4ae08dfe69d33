"""What MLX declares in the signature that it writes for the body of a kernel.

https://ml-explore.github.io/mlx/build/html/dev/custom_metal_kernels.html; read off MLX 0.32.
"""

from __future__ import annotations

__all__ = ["MLX_POSITIONS", "SMALL"]

# An input with fewer elements is passed in constant memory, whatever the kernel wants.
SMALL = 8

# What MLX declares where the body has the word, by its type.
MLX_POSITIONS: dict[str, str] = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}
