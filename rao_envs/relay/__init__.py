"""Relay: a probe in which one frame sees a code and another, which does not, must enter it."""
