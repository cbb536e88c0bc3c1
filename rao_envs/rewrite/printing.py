"""Token strings as text in the parser's own grammar, with the place of every node in it. SymPy is not needed."""

from __future__ import annotations

from typing import NamedTuple

from rao_envs.rewrite.tokens import (
    ADD,
    DERIVATIVE,
    FUNCTIONS,
    MUL,
    POW,
    RATIO,
    SYMBOL,
    SYMBOLS,
    Node,
    analyse,
    read_integer,
)

TERM, FACTOR, BASE = range(3)
"""How tightly what surrounds a node binds: as a term of a sum, a factor of a product, or the base or exponent of a power."""


class Printed(NamedTuple):
    """An expression as text."""

    text: str
    spans: dict[int, tuple[int, int]]  # node's start -> its first and end character, own parentheses included


def to_text(tokens: bytes) -> str:
    """The expression in the grammar of `rao_envs.rewrite.parser`, which reads it back."""
    return print_expression(tokens).text


def print_expression(tokens: bytes) -> Printed:
    """The expression as text, and where each node stands in it."""
    printer = _Printer(tokens)
    printer.write(0, TERM)
    return Printed("".join(printer.pieces), printer.spans)


class _Printer:
    def __init__(self, tokens: bytes) -> None:
        self.tokens, self.nodes = tokens, analyse(tokens)
        self.pieces: list[str] = []
        self.length = 0
        self.spans: dict[int, tuple[int, int]] = {}

    def put(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)

    def write(self, at: int, binding: int) -> None:
        """Write the node that begins at `at`."""
        begin = self.length
        node, token = self.nodes[at], self.tokens[at]
        parentheses = binding > self.strength(node)
        if parentheses:
            self.put("(")
        if node.atom:
            self.put(self.atom(at))
        elif token == ADD:
            for k, child in enumerate(node.children):
                negative = self.is_negative(child)
                if k:
                    self.put(" - " if negative else " + ")
                    self.write_term(child, negative)
                else:
                    self.write(child, FACTOR if self.tokens[child] == ADD else TERM)
        elif token == MUL:
            self.write_term(at, False)
        elif token == POW:
            self.write(node.children[0], BASE)
            self.put("^")
            self.write(node.children[1], BASE)
        else:
            self.put(FUNCTIONS[token] if token in FUNCTIONS else f"d/d{SYMBOLS[token - DERIVATIVE]}")
            self.put("(")
            self.write(node.children[0], TERM)
            self.put(")")
        if parentheses:
            self.put(")")
        self.spans[at] = (begin, self.length)

    def write_term(self, at: int, negated: bool) -> None:
        """A product or another term, its sign left out if it was written before."""
        begin = self.length
        if self.tokens[at] != MUL:
            if negated:
                self.put(self.atom(at).removeprefix("-"))
                self.spans[at] = (begin, self.length)
            else:
                self.write(at, FACTOR)
            return
        numbers = [child for child in self.nodes[at].children if self.is_number(child)]
        others = [child for child in self.nodes[at].children if not self.is_number(child)]
        above = [child for child in others if not self.is_inverse(child)]
        below = [child for child in others if self.is_inverse(child)]
        written = False
        for number in numbers:
            text = self.atom(number)
            start = self.length
            if text in ("1", "-1") and (above or len(numbers) > 1):
                self.put("-" if text == "-1" and not negated else "")
            else:
                self.put(text.removeprefix("-") if negated else text)
                written = True
            self.spans[number] = (start, max(self.length, start))
        for child in above:
            if written:
                self.put("*")
            self.write(child, FACTOR)
            written = True
        for child in below:
            self.put("/" if written else "1/")
            written = True
            start = self.length
            base, exponent = self.nodes[child].children
            value = read_integer(self.tokens, exponent)
            assert value is not None
            self.write(base, BASE)
            if value[0] != -1:
                self.put(f"^{-value[0]}")
            self.spans[exponent] = (self.length, self.length)
            self.spans[child] = (start, self.length)
        self.spans[at] = (begin, self.length)

    def strength(self, node: Node) -> int:
        """The tightest binding that this node stands without parentheses."""
        token = self.tokens[node.start]
        if token == ADD:
            return TERM
        if token in (MUL, RATIO) or (node.atom and self.is_negative(node.start)):
            return TERM if token == MUL and self.is_negative(node.start) else FACTOR
        return FACTOR if token == POW else BASE

    def is_number(self, at: int) -> bool:
        return self.tokens[at] == RATIO or read_integer(self.tokens, at) is not None

    def is_negative(self, at: int) -> bool:
        """Whether a term is written with a minus."""
        if self.tokens[at] == MUL:
            return any(self.is_negative(child) for child in self.nodes[at].children if self.is_number(child))
        return self.is_number(at) and self.atom(at).startswith("-")

    def is_inverse(self, at: int) -> bool:
        if self.tokens[at] != POW:
            return False
        exponent = read_integer(self.tokens, self.nodes[at].children[1])
        return exponent is not None and exponent[0] < 0

    def atom(self, at: int) -> str:
        if self.tokens[at] == RATIO:
            first = read_integer(self.tokens, at + 1)
            assert first is not None
            second = read_integer(self.tokens, first[1])
            assert second is not None
            return f"{first[0]}/{second[0]}"
        number = read_integer(self.tokens, at)
        return SYMBOLS[self.tokens[at] - SYMBOL] if number is None else str(number[0])
