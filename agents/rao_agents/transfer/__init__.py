"""State transfer: what a child gets from its parent beyond its task, and a parent from its child (MISSION A3, A11).

`layout` says what is added to an observation, `tracker` keeps the stack of states, `extractor` computes states and
messages from it (`exchange`, `memory`), `vec_env` does so while training and `acting` in `predict`.
"""
