"""The records of the operations in Triton's texts, in one module for each dialect, and the rules that records share."""
