"""Symbolic rewriting: named SymPy rules applied at a cursor, until an expression has the form that is asked for."""
