"""The operations of Triton's texts: one record each, in the module of its dialect, and the rules that records share."""
