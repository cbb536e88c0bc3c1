"""Distillers, one module for each kind of knowledge (MISSION B3)."""
