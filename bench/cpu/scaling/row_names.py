"""The names of the rows, for the process that imports neither torch nor Triton."""

ROWS = (
    "add 10,000",
    "add 100,000",
    "add 1,000,000",
    "add 2^24",
    "softmax 128x512",
    "softmax 4096x257",
    "rms norm 32x4096",
    "layer norm 4096x4096",
    "gather 8192x256",
    "matmul 512x512x512",
    "matmul 777x333x555",
    "bias gelu 1024x4096",
    "transpose 2048",
    "linear 1000x1000x1000",
    "linear 64x4096x1024 bf16",
    "linear 500x1500x700 bf16",
    "linear 300x300x4000 fp16",
    "linear 200x260x6000",
    "linear 333x2222x555 fp16",
    "linear 16x3000x3000 bf16",
    "causal flash 12x777x64",
    "causal flash 12x1024x64 bf16",
    "column sums 3000x2000",
    "column sums 100,000x8",
    "column maxima 5000x1200",
    "middle sums 64x100x257",
    "embedding gradient 8192x512",
    "embedding gradient 3000x1024",
    "log softmax 333x50,257",
    "matrix vector 4096",
    "matrix vector 4096 bf16",
    "adam 1,500,000",
)

# Rows that spend more time waking threads than computing.
SHORT = (
    "add 10,000",
    "add 100,000",
    "add 1,000,000",
    "softmax 128x512",
    "rms norm 32x4096",
    "gather 8192x256",
    "matmul 512x512x512",
)

# Rows of the README's table.
SHOWN = (
    "add 2^24",
    "layer norm 4096x4096",
    "matmul 512x512x512",
    "linear 1000x1000x1000",
    "linear 64x4096x1024 bf16",
    "causal flash 12x777x64",
    "causal flash 12x1024x64 bf16",
    "column sums 3000x2000",
    "embedding gradient 8192x512",
    "log softmax 333x50,257",
    "adam 1,500,000",
)
