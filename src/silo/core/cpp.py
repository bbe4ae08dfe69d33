"""Expressions printed as C++17, with the same results as in Python and C.

The printed text calls the functions of :data:`CPP_HELPERS` and expects an ``int`` named ``error`` in scope, 0 at first.
An overflow sets it to 1 and a division by zero to 2, the codes of :class:`silo.core.programs.EvalError`; the value then
means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.nodes import INT64_MIN, Const, Leaf, Node, Op, OpKind
from silo.errors import ExpressionError

__all__ = ["CPP_HELPERS", "to_cpp"]

CPP_HELPERS = """\
#include <cstdint>

namespace silo_expression {

inline void fail(int &error, int code) {
    if (error == 0)
        error = code;
}
inline std::int64_t add(int &error, std::int64_t x, std::int64_t y) {
    if ((y > 0 && x > INT64_MAX - y) || (y < 0 && x < INT64_MIN - y))
        return fail(error, 1), 0;
    return x + y;
}
inline std::int64_t sub(int &error, std::int64_t x, std::int64_t y) {
    if ((y < 0 && x > INT64_MAX + y) || (y > 0 && x < INT64_MIN + y))
        return fail(error, 1), 0;
    return x - y;
}
inline std::int64_t mul(int &error, std::int64_t x, std::int64_t y) {
    if (x == 0 || y == 0)
        return 0;
    if ((x == -1 && y == INT64_MIN) || (y == -1 && x == INT64_MIN))
        return fail(error, 1), 0;
    const std::int64_t product =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y));
    if (y != -1 && product / y != x)
        return fail(error, 1), 0;
    return product;
}
inline bool undivided(int &error, std::int64_t x, std::int64_t y) {
    if (y == 0)
        return fail(error, 2), true;
    if (x == INT64_MIN && y == -1)
        return fail(error, 1), true;
    return false;
}
inline std::int64_t floordiv(int &error, std::int64_t x, std::int64_t y) {
    if (undivided(error, x, y))
        return 0;
    return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
}
inline std::int64_t cdiv(int &error, std::int64_t x, std::int64_t y) {
    if (undivided(error, x, y))
        return 0;
    return x / y + (x % y != 0 && (x < 0) == (y < 0) ? 1 : 0);
}
inline std::int64_t mod(int &error, std::int64_t x, std::int64_t y) {
    if (y == -1)
        return 0;
    if (undivided(error, x, y))
        return 0;
    const std::int64_t rest = x % y;
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}
inline std::int64_t neg(int &error, std::int64_t x) {
    return sub(error, 0, x);
}
inline std::int64_t min(int &, std::int64_t x, std::int64_t y) {
    return x < y ? x : y;
}
inline std::int64_t max(int &, std::int64_t x, std::int64_t y) {
    return x < y ? y : x;
}
inline std::int64_t next_pow2(int &error, std::int64_t x) {
    if (x <= 0)
        return 0;
    if (x > (INT64_C(1) << 62))
        return fail(error, 1), 0;
    std::int64_t power = 1;
    while (power < x)
        power <<= 1;
    return power;
}

} // namespace silo_expression
"""

_COMPARISONS = {
    OpKind.EQ: "==",
    OpKind.NE: "!=",
    OpKind.LT: "<",
    OpKind.LE: "<=",
    OpKind.GT: ">",
    OpKind.GE: ">=",
}


def to_cpp(node: Node, names: Mapping[Leaf, str]) -> str:
    """A C++ expression of type ``std::int64_t``; ``names`` gives the text of each leaf, itself of that type.

    >>> from silo.core.nodes import Argument
    >>> to_cpp(Op(OpKind.CDIV, (Argument("n"), Const(128))), {Argument("n"): "n"})
    'silo_expression::cdiv(error, n, INT64_C(128))'
    """
    if isinstance(node, Const):
        return "INT64_MIN" if node.value == INT64_MIN else f"INT64_C({node.value})"
    if not isinstance(node, Op):
        if node not in names:
            raise ExpressionError(f"{node} has no name in C++; known: {', '.join(map(str, names)) or 'none'}")
        return names[node]
    operands = [to_cpp(operand, names) for operand in node.operands]
    if node.kind in _COMPARISONS:
        return _truth(f"{operands[0]} {_COMPARISONS[node.kind]} {operands[1]}")
    match node.kind:
        case OpKind.AND:
            return _truth(f"({operands[0]}) != 0 && ({operands[1]}) != 0")
        case OpKind.OR:
            return _truth(f"({operands[0]}) != 0 || ({operands[1]}) != 0")
        case OpKind.NOT:
            return _truth(f"({operands[0]}) == 0")
        case OpKind.SELECT:
            return f"(({operands[0]}) != 0 ? {operands[1]} : {operands[2]})"
        case kind:
            return f"silo_expression::{kind.value}(error, {', '.join(operands)})"


def _truth(condition: str) -> str:
    return f"static_cast<std::int64_t>({condition})"
