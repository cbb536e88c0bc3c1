"""The Dialogue family."""
