"""The Algebra family."""
