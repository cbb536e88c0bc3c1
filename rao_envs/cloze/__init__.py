"""Masked words of real texts, whose evidence lies thousands of words back."""
