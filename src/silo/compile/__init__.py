"""From variants to artifacts: plan, worker pool, toolchain identity."""
