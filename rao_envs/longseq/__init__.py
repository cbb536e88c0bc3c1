"""Long sequences: questions about far more records than one context window holds."""
