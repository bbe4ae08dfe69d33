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
)

# Rows whose time is that of waking threads more than that of their work.
SHORT = (
    "add 10,000",
    "add 100,000",
    "add 1,000,000",
    "softmax 128x512",
    "rms norm 32x4096",
    "gather 8192x256",
    "matmul 512x512x512",
)
