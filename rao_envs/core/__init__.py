"""What every family shares: call stack, kernels, environments, evaluation. No knowledge of any domain."""
