"""Small changes to a module, one at a time: the mutants that ``mutants.py`` tries the tests on.

Texts are left as they are, and so is what stands in types and f-strings.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

COMPARED = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
CALLED = {"max": "min", "min": "max", "any": "all", "all": "any", "mean": "sum"}


def path_of(module: str) -> str:
    """The file of ``helpers.<module>``, from the top."""
    return f"helpers/{module.replace('.', '/')}.py"


@dataclass(frozen=True)
class Mutant:
    """One change: the line it is on, what it is, and the module's whole source with it."""

    module: str
    number: int
    line: str
    change: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is known by; lines move, so not by their number."""
        return self.module, self.line, self.change

    def __str__(self) -> str:
        return f"{path_of(self.module)}:{self.number}: {self.line}\n    {self.change}"


@cache
def mutants(module: str) -> list[Mutant]:
    """Every mutant of ``helpers.<module>``, in the order of its lines."""
    source = (ROOT / path_of(module)).read_text(encoding="utf-8")
    tree, lines, found = ast.parse(source), source.splitlines(), []
    for node, put in places(tree):
        for new, change in changes(node):
            put(new)
            number = node.lineno  # type: ignore[attr-defined]
            line = lines[number - 1].strip()
            found.append(Mutant(module, number, line, change, ast.unparse(tree)))
        put(node)
    return found


def places(parent: ast.AST) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """Every node below ``parent``, with a function that puts another in its place."""
    if isinstance(parent, ast.JoinedStr):
        return
    for name, value in ast.iter_fields(parent):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(node, ast.AST) and not (
                isinstance(parent, ast.Module)
                and isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Subscript)  # a type's name
            ):
                put = partial(value.__setitem__, index) if isinstance(value, list) else None
                yield node, put or partial(setattr, parent, name)
                yield from places(node)


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """What could stand in place of ``node``, and the change in words."""
    for new in _other_values(node):
        yield new, f"{ast.unparse(node)}  ->  {ast.unparse(new)}"
    for name in ("elts", "keywords"):
        for index, item in enumerate(getattr(node, name, [])):
            if not isinstance(getattr(node, "ctx", None), ast.Store):
                yield _without(node, index, name), f"without {ast.unparse(item)}"
    match node:
        case ast.Dict():
            for index, item in enumerate(node.values):
                yield _without(node, index, "keys", "values"), f"without {ast.unparse(item)}"
        case ast.FunctionDef() | ast.Lambda():
            for name in ("defaults", "kw_defaults"):
                for index, value in enumerate(getattr(node.args, name)):
                    if value is not None and ast.unparse(value) != "None":
                        new = copy.deepcopy(node)
                        getattr(new.args, name)[index] = ast.Constant(None)
                        yield new, f"default {ast.unparse(value)}  ->  None"
        case ast.Expr(value=ast.Constant()):
            pass  # a docstring
        case ast.Expr() | ast.Raise() | ast.AugAssign() | ast.Assign(targets=[ast.Attribute()]):
            yield ast.Pass(), f"without {ast.unparse(node)}"
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call()):
            negated = copy.copy(node)
            negated.test = ast.UnaryOp(ast.Not(), node.test)
            yield negated, f"if not {ast.unparse(node.test)}"


def _other_values(node: ast.AST) -> Iterator[ast.AST]:
    """Other expressions in place of an expression."""
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Constant(value=float() as value):
            yield from (ast.Constant(v) for v in ((3 * value, value / 3) if value else (1.0,)))
        case ast.Compare(ops=[operator]):
            for other in COMPARED[type(operator)]:
                yield ast.Compare(node.left, [other()], node.comparators)
        case ast.Compare():  # a < b < c, without its ends in turn
            yield ast.Compare(node.left, node.ops[:-1], node.comparators[:-1])
            yield ast.Compare(node.comparators[0], node.ops[1:], node.comparators[1:])
        case ast.BinOp() if type(node.op) in COMPUTED:
            yield ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp():
            yield node.operand
        case ast.Call(func=ast.Name(id=name)) if name in CALLED:
            yield ast.Call(ast.Name(CALLED[name]), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in CALLED:
            yield ast.Call(ast.Attribute(of, CALLED[name]), node.args, node.keywords)
        case ast.Call(func=ast.Name("Check"), args=[what, value, limit, *rest], keywords=more) if (
            not isinstance(limit, ast.Constant)
        ):
            for factor in (3, 1 / 3):
                changed = ast.BinOp(limit, ast.Mult(), ast.Constant(factor))
                yield ast.Call(node.func, [what, value, changed, *rest], more)
        case ast.Call(args=[value]) if ast.unparse(node.func) in ("abs", "np.abs"):
            yield value
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))


def _without(node: ast.AST, index: int, *names: str) -> ast.AST:
    new = copy.copy(node)
    for name in names:
        rest = list(getattr(node, name))
        del rest[index]
        setattr(new, name, rest)
    return new
