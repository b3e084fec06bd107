"""Networks at run time: inputs, executors, engines, states."""
