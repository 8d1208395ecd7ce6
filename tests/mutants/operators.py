# SPDX-License-Identifier: Apache-2.0
"""Faults: the small changes to a function that a careful person could make by mistake, one at a time.

A fault is a changed copy of a module's syntax tree. Docstrings, annotations, and what errors say are left alone.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
_MISTAKEN = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "train": "val",
    "val": "train",
    "sent": "received",
    "received": "sent",
    "refused": "received",
    "selected": "sampled",
    "sampled": "selected",
    "merged": "trained",
    "precision": "recall",
    "recall": "precision",
    "precisions": "recalls",
    "recalls": "precisions",
    "loss": "accuracy",
    "accuracy": "loss",
    "n_sampled": "n_peers",
    "n_peers": "n_sampled",
    "m": "n_sampled",
    "own": "out",
    "out": "own",
    "best": "last",
    "last": "best",
    "uniform": "received",
    "first": "last",
    "popleft": "pop",
    "append": "appendleft",
    "neighbours": "_reachable",
    "to": "me",
    "senders": "chosen",
    "chosen": "senders",
    "stopping": "training",
}
"""Names and words that are taken for each other."""
_OWNERS = ("peer", "me", "sender", "stranger", "to", "p")
"""Names of a peer: a count credited to one may be credited to peer 0."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One fault."""

    module: str
    function: str
    """Its qualified name; nested functions belong to the outermost."""
    line: int
    name: str
    """What stands for it in lists: module, function, what was exchanged for what; stable when lines move."""
    _tree: ast.Module
    _node: ast.AST
    _changed: ast.AST

    def tree(self) -> ast.Module:
        """The module with the fault."""
        return _exchanged(self._tree, self._node, self._changed)


def mutants_of(module: str, source: str, only: frozenset[str] = frozenset()) -> list[Mutant]:
    """All faults of a module, or of some of its functions."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for qualified, function in functions_of(tree):
        if only and qualified not in only:
            continue
        for node in _body(function):
            for what, changed in _changes(node):
                name = f"{module} {qualified}: {what}"
                seen[name] += 1
                numbered = name if seen[name] == 1 else f"{name} #{seen[name]}"
                line = getattr(node, "lineno", function.lineno)
                found.append(Mutant(module, qualified, line, numbered, tree, node, changed))
    return found


def functions_of(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions and methods with their qualified names."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{inner.name}", inner) for inner in node.body if isinstance(inner, Function))


def _body(function: Function) -> Iterator[ast.AST]:
    """All nodes that run when the function is called and are no words for a user."""
    waiting: list[ast.AST] = [*reversed(function.body)]
    if waiting and isinstance(first := waiting[-1], ast.Expr) and isinstance(first.value, ast.Constant):
        waiting.pop()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
            continue
        yield node
        if isinstance(node, ast.AnnAssign):
            waiting += [node.value] if node.value else []
        elif isinstance(node, Function):
            waiting += reversed(node.body)
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            continue
        elif isinstance(node, ast.Compare) and isinstance(listed := node.comparators[0], ast.Tuple):
            waiting += [*reversed(listed.elts), node.left]  # its order does not matter
        else:
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _exchanged(tree: ast.Module, node: ast.AST, changed: ast.AST) -> ast.Module:
    """A copy of the tree with one node exchanged."""
    memo: dict[int, Any] = {}
    copied = copy.deepcopy(tree, memo)
    place = memo[id(node)]
    place.__class__, fields = changed.__class__, vars(changed)
    position = {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
                if hasattr(node, name)}  # fmt: skip
    place.__dict__ = {**copy.deepcopy(fields), **position}
    return ast.fix_missing_locations(copied)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What is wrong, and the node that is."""
    for changed in _wrong(node):
        before, after = _text(node), _text(changed)
        if before != after:
            yield f"`{before}` → `{after}`", changed


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {_text(node.test)}: …"
    text = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    return text if len(text) < 90 else f"{text[:60]} … {text[-25:]}"


def _wrong(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, ops, comparators):
            for i, op in enumerate(ops):
                for other in _COMPARED[type(op)]:
                    yield ast.Compare(left, [*ops[:i], other(), *ops[i + 1 :]], comparators)
        case ast.BinOp(left, op, right) if type(op) in _COMPUTED:
            yield ast.BinOp(left, _COMPUTED[type(op)](), right)
        case ast.AugAssign(target, op, value) if type(op) in _COMPUTED:
            yield ast.AugAssign(target, _COMPUTED[type(op)](), value)
            yield ast.Pass()
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
            yield from (_joined(op, [*values[:i], *values[i + 1 :]]) for i in range(len(values)))
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.UnaryOp(ast.USub(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
            yield body
            yield orelse
        case ast.If(test, body, orelse):
            if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr | ast.Subscript):
                yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
            if not orelse:
                yield ast.Pass()
        case ast.comprehension(target, iterated, [_, *_], is_async):
            yield ast.comprehension(target, iterated, [], is_async)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
            yield from [ast.Constant(value - 1)] if value == 1 else []
        case ast.Constant(float(value)):
            yield ast.Constant(value * 2 + 1)
        case ast.Constant(str(value)) if value in _MISTAKEN:
            yield ast.Constant(_MISTAKEN[value])
        case ast.Name(name, ast.Load()) if name in _MISTAKEN:
            yield ast.Name(_MISTAKEN[name], ast.Load())
        case ast.Attribute(value, name, ast.Load()) if name in _MISTAKEN:
            yield ast.Attribute(value, _MISTAKEN[name], ast.Load())
        case ast.Subscript(value, ast.Name(name) | ast.Attribute(_, name), context) if name in _OWNERS:
            yield ast.Subscript(value, ast.Constant(0), context)
        case ast.Slice(lower, upper, step) if (lower is None) != (upper is None):
            yield ast.Slice(upper, lower, step)
        case ast.Call(function, arguments, keywords):
            yield from _wrong_calls(function, arguments, keywords)
        case ast.Tuple([first, second, *rest], ast.Load()):
            yield ast.Tuple([second, first, *rest], ast.Load())
        case ast.Expr(ast.Call() | ast.YieldFrom()):
            yield ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Delete() | ast.Break() | ast.Continue():
            yield ast.Pass()
        case ast.Return(value) if value and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))


def _joined(op: ast.boolop, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.BoolOp(op, values)


def _wrong_calls(function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Iterator[ast.AST]:
    """Two neighbouring arguments exchanged; an optional argument forgotten; the argument in place of what is made."""
    called = getattr(function, "attr", getattr(function, "id", ""))
    symmetric = called in ("min", "max", "minimum", "maximum")
    for i in range(0 if symmetric else len(arguments) - 1):
        if not any(isinstance(a, ast.Starred) for a in arguments[i : i + 2]):
            yield ast.Call(function, [*arguments[:i], arguments[i + 1], arguments[i], *arguments[i + 2 :]], keywords)
    for i, keyword in enumerate(keywords):
        if keyword.arg not in (None, "strict", "key", "dtype", "device"):
            yield ast.Call(function, arguments, [*keywords[:i], *keywords[i + 1 :]])
    if isinstance(function, ast.Name) and function.id in ("sorted", "reversed", "abs", "round", "max", "min"):
        yield from arguments[:1] if len(arguments) == 1 else []
