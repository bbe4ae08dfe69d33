"""The records of the operations of Triton's IR, in one module for each dialect, and the rules that records share."""
