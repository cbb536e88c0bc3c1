"""The Maze family."""
