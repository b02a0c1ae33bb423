"""Rewrite CUDA C++ as a host program for g++: kernels report their arguments, device code is
removed.

The file is preprocessed first, to expand macros that launch kernels or hold parts of a launch
configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from cudareduce.cuda_source import parse_cuda, walk
from cudareduce.external.preprocess import Preprocessed

_LAUNCH_CALLS = re.compile(
    r"(?:::)?cuda(?:LaunchKernel(?:Ex|ExC)?|LaunchCooperativeKernel|GraphAddKernelNode)(?:<.*>)?",
    re.DOTALL,
)
#: What code that launches a kernel contains.
LAUNCH = re.compile(rb"<\s*<\s*<|\bcudaLaunch|\bcudaGraphAddKernelNode")


@dataclass(frozen=True, slots=True)
class HostFunction:
    """A host function. `call` is the qualified name for a call: `ns::sum<float>`."""

    name: str
    call: str
    parameters: tuple[str, ...]
    launches: bool
    calls: frozenset[str]
    line: int


@dataclass(frozen=True, slots=True)
class HostProgram:
    """The rewritten C++, with its kernels and host functions."""

    text: bytes
    functions: tuple[HostFunction, ...]
    bodies: tuple[tuple[int, int, int], ...]  # (first line, last line, first byte) of each function


def rewrite(source: Preprocessed, blank: frozenset[int] = frozenset()) -> HostProgram:
    """Replace kernels by stubs and launches by calls. Function bodies at the positions in
    `blank` are emptied."""
    text = re.sub(
        rb"\b__(?:cluster_dims|block_size|maxnreg)__\s*\([^()]*\)",
        lambda found: b" " * len(found[0]),
        source.text,
    )
    return _Rewriter(source, text, blank).program()


def _text(node: Node | None) -> str:
    return (node.text or b"").decode(errors="replace") if node else ""


class _Rewriter:
    def __init__(self, source: Preprocessed, text: bytes, blank: frozenset[int]) -> None:
        self._source, self._code, self._blank = source, text, blank
        self._root = parse_cuda(text)
        self._edits: list[tuple[int, int, bytes]] = []
        self._kernels: set[str] = set()
        self._functions: list[HostFunction] = []
        self._bodies: list[tuple[int, int, int]] = []

    def program(self) -> HostProgram:
        functions = [node for node in walk(self._root) if node.type == "function_definition"]
        for function in functions:
            if b"__global__" in self._head(function):
                self._kernels.add(_text(_name_node(function)).rpartition("::")[2])
        self._visit(self._root)
        text = self._code
        for start, end, replacement in sorted(
            self._edits, key=lambda e: (e[0], e[1]), reverse=True
        ):
            newlines = text[start:end].count(b"\n") - replacement.count(b"\n")
            text = text[:start] + replacement + b"\n" * max(0, newlines) + text[end:]
        return HostProgram(text, tuple(self._functions), tuple(self._bodies))

    def _line(self, node: Node) -> int:
        return self._source.place(node.start_point[0])[1]

    def _head(self, function: Node) -> bytes:
        body = function.child_by_field_name("body")
        return self._code[function.start_byte : body.start_byte if body else function.end_byte]

    def _visit(self, root: Node) -> None:
        left = [root]
        while left:
            node = left.pop()
            if node.type == "function_definition" and self._define(node):
                continue
            if node.type == "call_expression":
                self._call(node)
            elif node.type == "cast_expression":
                self._cast(node, node.child_by_field_name("value"))
            elif node.type == "declaration" and b"__global__" in (node.text or b""):
                self._declare(node)
            elif node.type == "declaration":
                self._symbol(node)
            left += reversed(node.children)

    def _define(self, function: Node) -> bool:
        """True if nothing inside a function needs to be rewritten."""
        body, head = function.child_by_field_name("body"), self._head(function)
        if body is None:
            return False
        words = set(re.findall(rb"\w+", head))
        if b"__global__" in words:
            self._edits.append((body.start_byte, body.end_byte, self._stub(function)))
            return True
        device_only = b"__device__" in words and b"__host__" not in words
        if (device_only and b"constexpr" not in words) or body.start_byte in self._blank:
            self._edits.append((body.start_byte, body.end_byte, b"{ __builtin_trap(); }"))
            return True
        self._bodies.append((body.start_point[0], body.end_point[0], body.start_byte))
        if not device_only:
            described = _describe(function, body, self._line(function))
            if described:
                self._functions.append(described)
        return False

    def _declare(self, declaration: Node) -> None:
        """A stub for a kernel that is only declared."""
        name = _text(_name_node(declaration))
        if name and name not in self._kernels:
            self._kernels.add(name)
            end = declaration.end_byte
            self._edits.append((end - 1, end, b" " + self._stub(declaration)))

    def _stub(self, function: Node) -> bytes:
        declarator = _function_declarator(function)
        parameters = declarator.child_by_field_name("parameters") if declarator else None
        lines: list[str] = []
        for parameter in parameters.named_children if parameters else ():
            if not parameter.type.endswith("parameter_declaration"):
                continue
            name = _parameter_name(parameter)
            if not name:
                if _text(parameter) != "void":
                    name = f"recorder_unnamed_{len(lines)}"
                    default = parameter.child_by_field_name("default_value")
                    at = parameter.end_byte
                    if default:
                        at = self._code.rindex(b"=", parameter.start_byte, default.start_byte)
                    self._edits.append((at, at, b" " + name.encode()))
                else:
                    continue
            report = f'recorder_stub.argument<decltype({name})>("{name}", {name})'
            is_pack = parameter.type.startswith("variadic")
            lines.append(f"({report}, ...);" if is_pack else f"{report};")
        names = ",".join(_template_parameter_names(function))
        start = f'{{ ::recorder::Stub recorder_stub(__PRETTY_FUNCTION__, "{names}"); '
        return (start + " ".join(lines) + " }").encode()

    def _call(self, call: Node) -> None:
        function = call.child_by_field_name("function")
        config = next((c for c in call.children if c.type == "kernel_call_syntax"), None)
        if config is not None and function is not None:
            inside = self._code[config.start_byte : config.end_byte]
            inside = re.sub(rb"^<\s*<\s*<|>\s*>\s*>$", b"", inside)
            start = b"(::recorder::configure(%d, %s), " % (self._line(call), inside)
            self._edits.append((call.start_byte, call.start_byte, start.replace(b"\n", b" ")))
            self._edits.append((config.start_byte, config.end_byte, b""))
            self._edits.append((call.end_byte, call.end_byte, b")"))
        elif _LAUNCH_CALLS.fullmatch(_text(function)):
            start = b"(::recorder::at(%d), " % self._line(call)
            self._edits.append((call.start_byte, call.start_byte, start))
            self._edits.append((call.end_byte, call.end_byte, b")"))
        elif re.match(r"reinterpret_cast\s*<[^<>]*void[^<>]*>$", _text(function)):
            arguments = call.child_by_field_name("arguments")
            values = arguments.named_children if arguments else []
            self._cast(call, values[0] if len(values) == 1 else None)

    def _cast(self, cast: Node, value: Node | None) -> None:
        """A cast of a kernel's address to `void *`. The recorder keeps the stub for it."""
        target = _text(cast.child_by_field_name("type") or cast.child_by_field_name("function"))
        while value is not None and value.type in (
            "parenthesized_expression",
            "pointer_expression",
        ):
            value = value.named_children[0] if value.named_children else None
        if value is None or "void" not in target:
            return
        name = value.child_by_field_name("name") if value.type == "template_function" else value
        if _text(name).rpartition("::")[2].partition("<")[0] in self._kernels:
            call = b"(::recorder::function_address(%s))" % (value.text or b"")
            self._edits.append((cast.start_byte, cast.end_byte, call))

    def _symbol(self, declaration: Node) -> None:
        """Register `__device__` variables at namespace scope."""
        words = set(re.findall(r"\w+", _text(declaration).partition("=")[0]))
        if not words & {"__device__", "__constant__", "__managed__"} or "extern" in words:
            return
        parent = declaration.parent
        if parent is not None and parent.type == "declaration_list":
            parent = parent.parent
        if parent is None or parent.type not in (
            *("translation_unit", "namespace_definition", "linkage_specification"),
        ):
            return
        managed = "true" if "__managed__" in words else "false"
        scope = _scope(declaration)
        registered = []
        for declarator in declaration.children_by_field_name("declarator"):
            functions = (n for n in walk(declarator) if n.type == "function_declarator")
            named = (n.child_by_field_name("declarator") for n in functions)
            if any(n and n.type == "identifier" for n in named):
                continue  # it declares a function
            name = _names(declarator)[0]
            registered.append(
                f' static ::recorder::Symbol recorder_symbol_{name}("{scope}{name}", '
                f"::recorder::name_holder<std::remove_all_extents_t<decltype({name})>>(), "
                f"&{name}, sizeof({name}), {managed});"
            )
        end = declaration.end_byte
        self._edits.append((end, end, "".join(registered).encode()))


def _scope(node: Node) -> str:
    """The namespaces around a declaration: `one::two::`."""
    names: list[str] = []
    parent = node.parent
    while parent is not None:
        if parent.type == "namespace_definition":
            names.insert(0, _text(parent.child_by_field_name("name")))
        parent = parent.parent
    return "".join(f"{name}::" for name in names if name)


def _function_declarator(function: Node) -> Node | None:
    declarator = function.child_by_field_name("declarator")
    below = walk(declarator) if declarator else ()
    return next((node for node in below if node.type == "function_declarator"), None)


def _name_node(function: Node) -> Node | None:
    declarator = _function_declarator(function)
    return declarator.child_by_field_name("declarator") if declarator else None


def _names(node: Node | None) -> list[str]:
    """The names in a declarator, the declared name first."""
    below = walk(node) if node else ()
    return [_text(n) for n in below if n.type in ("identifier", "type_identifier")]


def _parameter_name(parameter: Node) -> str:
    """The name of a parameter, or "" if it has none."""
    return next(iter(_names(parameter.child_by_field_name("declarator"))), "")


def _template_parameter_names(function: Node) -> list[str]:
    template = function.parent
    if template is None or template.type != "template_declaration":
        return []
    names = []
    parameters = template.child_by_field_name("parameters")
    for parameter in parameters.named_children if parameters else ():
        found = _names(parameter.child_by_field_name("declarator") or parameter)
        if parameter.type == "template_template_parameter_declaration":
            found.reverse()
        names += found[:1]
    return names


def _describe(function: Node, body: Node, line: int) -> HostFunction | None:
    """Describe a host function for a call; None for a member of a class template."""
    declarator = _function_declarator(function)
    named = _name_node(function)
    kinds = ("identifier", "qualified_identifier", "field_identifier")
    if declarator is None or named is None or named.type not in kinds:
        return None
    scopes: list[str] = []
    node = function.parent
    while node is not None:
        if node.type in ("class_specifier", "struct_specifier", "namespace_definition"):
            scopes.insert(0, _text(node.child_by_field_name("name")))
            is_template = node.parent is not None and node.parent.type == "template_declaration"
            if is_template or (not scopes[0] and node.type != "namespace_definition"):
                return None
        node = node.parent
    name = _text(named)
    call = "::".join(scope for scope in (*scopes, name) if scope)
    arguments = _template_arguments(function)
    parameters = declarator.child_by_field_name("parameters")
    code = _text(body)
    return HostFunction(
        name=name.rpartition("::")[2],
        call=f"{call}<{', '.join(arguments)}>" if arguments else call,
        parameters=tuple(
            _parameter_name(p)
            for p in (parameters.named_children if parameters else ())
            if p.type.endswith("parameter_declaration") and _text(p) != "void"
        ),
        launches=LAUNCH.search(body.text or b"") is not None,
        calls=frozenset(re.findall(r"\b(\w+)\s*(?:<[^<>;(){}]*>\s*)?\(", code)),
        line=line,
    )


def _template_arguments(function: Node) -> list[str]:
    """Template arguments for calling a host template: float for types, 256 for numbers."""
    template = function.parent
    if template is None or template.type != "template_declaration":
        return []
    arguments = []
    parameters = template.child_by_field_name("parameters")
    for parameter in parameters.named_children if parameters else ():
        if parameter.type == "type_parameter_declaration":
            arguments.append("float")
        elif parameter.type == "parameter_declaration":
            kind = _text(parameter.child_by_field_name("type"))
            is_number = re.search(r"\b(?:int|unsigned|long|short|size_t|u?int\d+_t|auto)\b", kind)
            arguments.append("256" if is_number else f"static_cast<{kind}>(1)")
        else:  # it has a default, or is a pack
            break
    return arguments
