"""What does not run yet, or cannot, and why. The census fails where one of these runs after all, or fails otherwise.

The text is a part of the error. "Liger" and "Triton" say whose limit it is; "later" that the CPU target is to have it.
"""

MISSING = {
    "feature: inline assembly": ("it is a GPU's", "tt.elementwise_inline_asm"),
    "liger: dyt backward": ("Liger counts the cores of CUDA, XPU and NPU devices alone", "NUM_SMS"),
    "liger: softmax of rows longer than a block": ("Liger refuses them", "exceeds the recommended Triton blocksize"),
    "liger: softmax backward by blocks, the kernel": (
        "Triton refuses it, and Liger never launches it",
        "'dtype' object is not callable",
    ),
}
