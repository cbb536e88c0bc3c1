"""Nested brackets: `RAO/LongSeq-nested`."""
