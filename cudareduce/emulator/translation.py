"""Translation of a CUDA kernel file into C++ for g++; every line keeps its number.

Besides the few rewrites that C++ needs, the text gets calls that let the emulator find faults:
variables without an initial value are filled, branches and loops around barriers are marked, and so
are `return` statements, since a thread that returns early may leave later barriers out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from cudareduce.backend import Source
from cudareduce.cuda_source import parse_cuda, text, walk, without_comments

_ARGUMENTS = r"\((?:[^()]|\([^()]*\))*\)"
_ENTRY = re.compile(
    r'extern\s+"C"\s+(?P<words>(?:(?:__global__|static|void|__launch_bounds__\s*'
    rf"{_ARGUMENTS}|__(?:maxnreg|cluster_dims|block_size)__\s*{_ARGUMENTS})\s*)+)(?P<name>\w+)\s*\("
)
_BOUNDS = re.compile(rf"__launch_bounds__\s*(?P<arguments>{_ARGUMENTS})")
#: A kernel that is for newer GPUs alone is compiled as for one.
_MIN_CC = re.compile(r'^[ \t]*min_cc\s*=\s*"(\d+)\.(\d)"', re.MULTILINE)
DEFAULT_ARCH = 800
_ASKS_ARCH = re.compile(r"\b__CUDA_ARCH__\s*(>=|<=?|>|==|!=)\s*(\d{3,4})\b")
_MOST_ARCHS = 3
_DYNAMIC_SHARED = re.compile(
    r"extern\s+(?P<first>(?:[\w:]+\s+)*?)__shared__\s+"
    rf"(?:(?:__align__|alignas)\s*{_ARGUMENTS}\s*)?"
    r"(?P<type>[\w:<>\s*]*?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;"
)
#: With nvcc this defines the variable; to C++ it is a declaration unless it stands in braces.
_EXTERN_C_VARIABLE = re.compile(r'extern\s+"C"\s+((?:__constant__|__device__)\s[^;(){}=]*;)')

#: Where C++ has alignas only in front of all, nvcc has __shared__ as an attribute.
_ALIGNED_SHARED = re.compile(
    rf"(?P<words>(?:static\s+)?__shared__\s+(?:static\s+)?)(?P<aligned>alignas\s*{_ARGUMENTS})"
)


#: Specifiers of a variable that is not a thread's own or has a value.
_NOT_OWN = frozenset(["__shared__", "static", "extern", "constexpr", "const", "__constant__"])
#: Declarators that may stand without an initialiser.
_PLAIN = frozenset(["identifier", "array_declarator", "pointer_declarator"])
#: Calls that wait for all threads of a block; `sync` may also be that of a smaller group.
_BARRIER = re.compile(r"\b__syncthreads(?:_or|_and|_count)?\b|\bsync\s*\(|\b__barrier_sync\b")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\.|\\\n)*)", re.MULTILINE)
_FUNCTIONS = ("function_definition", "lambda_expression")
_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")

_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*+"?|\'(?:\\.|[^\'\\\n]){1,12}\''
    r"|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*",
    re.DOTALL | re.MULTILINE,
)
_SCOPE = re.compile(r"\bnamespace\b[^(){};]*$|\bextern\s+$")
_OF_DEVICE = re.compile(r"\b__(?:device|global)__\b")
#: A function of the host, without templates. Other words might be macros for __device__.
_HOST_FUNCTION = re.compile(
    r"\s*(?:(?:static|inline|const|unsigned|signed|int|long|short|char|bool|float|double|void"
    r"|size_t|u?int\d+_t|Acc|In|Out|Element|Scalar|Result)\b[\s*&]*)+"
    r"\b(?P<name>[A-Za-z_]\w*)\s*\([^{}]*\)\s*(?:noexcept\s*)?"
)
#: What the standard library has for the host alone; a constant may come from it all the same.
_STANDARD = re.compile(
    r"(?<!\bcuda::)\bstd::(?P<name>(?:min|max|minmax|clamp|swap|sort|accumulate|reduce|fill|fill_n"
    r"|copy|copy_n|transform|inner_product|max_element|min_element|exchange|iota|partial_sum)"
    r"(?=\s*(?:<[^<>;{}]*>\s*)?\()"
    r"|numeric_limits(?=\s*<[^<>;{}]*>\s*::\s*\w+\s*\(\s*\))"
    r"|(?:plus|minus|multiplies|less|greater|bit_and|bit_or|bit_xor)"
    r"(?=\s*<[^<>;{}]*>\s*(?:\(\)|\{\})\s*\())"
)
_CONSTANT = re.compile(
    r"\b(?:const|constexpr|static_assert|template|enum|case|using|typedef|sizeof|decltype)\b"
    r"|\[[^\]]*$|<[^>()]*$"
)
_MARK = '_Pragma("GCC error \\"{} is a function of the host, which nvcc lets no kernel call\\"") '


def translation_unit(source: Source) -> str:
    """The kernel's text in C++ and the entry points of all its kernels."""
    code = instrumented(mark_host_calls(source.text))
    code = _DYNAMIC_SHARED.sub(_dynamic_shared, code)
    if "alignas" in code:
        code = _ALIGNED_SHARED.sub(r"\g<aligned> \g<words>", code)
    code = code.replace("__noinline__", "__attribute__((noinline))")
    code = _EXTERN_C_VARIABLE.sub(r'extern "C" { \1 }', code)
    if source.kernels:
        return f'#line 1 "<prelude>"\n{code}\n#line 1 "<entry points>"\n{_symbols(source)}'
    bounds: dict[str, str] = {}
    for found in _ENTRY.finditer(without_comments(parse_cuda(code))):
        bound = _BOUNDS.search(found["words"])
        bounds[found["name"]] = f", {bound['arguments'][1:-1]}" if bound else ""
    bounds.setdefault(source.entry, "")
    entries = "".join(f"CUDAEMU_ENTRY({name}{bound})\n" for name, bound in bounds.items())
    return f'#line 1 "<prelude>"\n{code}\n#line 1 "<entry points>"\n{entries}'


def _symbols(source: Source) -> str:
    """The lines that make the kernels and variables of an external program known to the loader."""
    lines = [
        f"CUDAEMU_KERNEL(kernel{k}, {_bound(source.text, name)}, {name})\n"
        for k, name in enumerate(source.kernels)
    ]
    lines += [f"CUDAEMU_VARIABLE(variable{k}, {v})\n" for k, v in enumerate(source.variables)]
    return "".join(lines)


def _bound(code: str, kernel: str) -> str:
    """Threads a block that the launch bounds of a kernel allow, where they are a number."""
    name = kernel.partition("<")[0].rpartition("::")[2]
    found = re.search(rf"__launch_bounds__\s*\(\s*(\d+)[^()]*\)\s*(?:void\s+)?{name}\s*\(", code)
    return found[1] if found else "1024"


def _dynamic_shared(found: re.Match[str]) -> str:
    """A declaration for dynamic shared memory; at file scope it depends on the running block."""
    at = len(found.string[: found.start()].encode())
    node = parse_cuda(found.string).descendant_for_byte_range(at, at)
    while node is not None and node.type != "compound_statement":
        node = node.parent
    macro = "CUDAEMU_SHARED_OF_FILE" if node is None else "CUDAEMU_DYNAMIC_SHARED"
    return f"{macro}({found['first']}{found['type']}, {found['name']});"


def archs(source: Source) -> tuple[int, ...]:
    """Values of __CUDA_ARCH__, at least `min_cc`, that select different branches of a kernel file.

    The first is the default. Branches in the typed prelude do not count: they only tune.
    """
    _, _, kernel_text = source.text.partition(f'#line 1 "{source.path}"\n')
    kernel_text = kernel_text or source.text
    [(a, b)] = _MIN_CC.findall(source.text)[:1] or [("7", "5")]
    least = 100 * int(a) + 10 * int(b)
    usual = max(least, DEFAULT_ARCH)
    asked = {int(n) + (10 if sign == ">" else 0) for sign, n in _ASKS_ARCH.findall(kernel_text)}
    steps = sorted(n for n in asked if n > least)
    if not steps:
        return (usual,)
    own = max((n for n in steps if n <= usual), default=least)
    return (usual, *(n for n in (least, *steps) if n != own))[:_MOST_ARCHS]


def instrumented(code: str) -> str:
    """The code with calls inserted, each in its line, that let the emulator find faults."""
    data = code.encode(errors="replace")
    inserted: list[tuple[int, int, str]] = []
    with_barrier = _calls_with_barrier(code, parse_cuda(data))
    for node in walk(parse_cuda(data)):
        if node.type == "declaration" and (names := _unset(node)):
            calls = "".join(f" cudaemu::unset({name});" for name in names)
            inserted.append((node.end_byte, 1, calls))
        elif node.type == "return_statement" and _is_early_return(node):
            at = node.start_byte + len("return")
            inserted.append((at, 1, " cudaemu::return_early()"))
        elif with_barrier and node.type in (*_LOOPS, "if_statement"):
            inserted += _barrier_scopes(node, with_barrier)
    parts, start = [], 0
    for place, _, call in sorted(inserted):
        parts += [data[start:place], call.encode()]
        start = place
    return b"".join([*parts, data[start:]]).decode(errors="replace")


def _unset(declaration: Node) -> list[str]:
    """The variables of a thread that a declaration gives no value.

    The emulator fills them with NaN, large or small numbers. The pattern of g++ is a small number,
    which a maximum hides.
    """
    own = declaration.parent is not None and declaration.parent.type == "compound_statement"
    before = declaration.prev_sibling  # its end, unless the parser has skipped some tokens
    whole = before is None or before.type == "comment" or text(before)[-1:] in ("{", ";", "}", "\n")
    words = {text(child) for child in declaration.children}
    if not own or not whole or declaration.has_error or words & _NOT_OWN:
        return []
    declarators = declaration.children_by_field_name("declarator")
    return [name for one in declarators if one.type in _PLAIN and (name := _name(one))]


def _name(declarator: Node) -> str:
    """The name of a variable or array in a declarator; empty for a function."""
    node: Node | None = declarator
    while node is not None and node.type in _PLAIN - {"identifier"}:
        node = node.child_by_field_name("declarator")
    return text(node) if node is not None and node.type == "identifier" else ""


def _is_early_return(node: Node) -> bool:
    """True for `return;` in a function without a result, from which a thread skips the rest."""
    if text(node).replace(" ", "") != "return;":
        return False
    function = node.parent
    while function is not None and function.type not in _FUNCTIONS:
        function = function.parent
    if function is None or function.type == "lambda_expression":
        return False
    result = function.child_by_field_name("type")
    return result is not None and text(result) == "void" and "constexpr" not in text(function)


def _calls_with_barrier(code: str, root: Node) -> re.Pattern[str] | None:
    """What a call looks like that reaches a barrier of the block, also through other functions and
    macros of this file; None if there is none."""
    if not _BARRIER.search(code):
        return None
    bodies = dict(_MACRO.findall(code))
    for node in walk(root):
        if node.type == "function_definition":
            declarator = node.child_by_field_name("declarator")
            found = re.search(r"(\w+)\s*\(", text(declarator)) if declarator else None
            body = node.child_by_field_name("body")
            if found and body is not None:
                bodies[found[1]] = bodies.get(found[1], "") + text(body)
    names: set[str] = set()
    while True:
        pattern = "|".join([_BARRIER.pattern, *(rf"\b{name}\b" for name in sorted(names))])
        reached = {name for name, body in bodies.items() if re.search(pattern, body)}
        if reached == names:
            return re.compile(pattern)
        names = reached


def _barrier_scopes(node: Node, with_barrier: re.Pattern[str]) -> list[tuple[int, int, str]]:
    """Insertions that mark the bodies of a branch or loop that contains a barrier."""
    function: Node | None = node
    while function is not None and function.type != "function_definition":
        function = function.parent
    if function is None or "constexpr" in text(function).partition("{")[0]:
        return []
    line = f"__LINE__, {'true' if node.type in _LOOPS else 'false'}"
    found: list[tuple[int, int, str]] = []
    for field in ("body", "consequence", "alternative"):
        body = node.child_by_field_name(field)
        if body is not None and body.type == "else_clause":
            body = next((child for child in reversed(body.children) if child.is_named), None)
        if body is None or body.type == "if_statement" or not with_barrier.search(text(body)):
            continue
        mark = f" CUDAEMU_BARRIER_SCOPE({line})"
        if body.type == "compound_statement":
            found.append((body.start_byte + 1, 0, mark))
        else:
            found += [(body.start_byte, 0, "{" + mark + " "), (body.end_byte, 2, " }")]
    return found


def mark_host_calls(text: str) -> str:
    """The text with an error in front of each call of a host function from device code."""
    seen = _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    bodies = list(_bodies(seen))
    marks: dict[int, str] = {}
    hosts = _host_functions(text, seen, [head for head, _, _ in bodies])
    for head, begin, end in bodies:
        if not _OF_DEVICE.search(head):
            continue
        for call in _STANDARD.finditer(seen, begin, end):
            statement = re.split(r"[;{}]", seen[begin : call.start()])[-1]
            if not _CONSTANT.search(statement):
                marks[call.start()] = f"std::{call['name']}"
        for name in hosts:
            if not re.search(rf"\b{name}\b(?!\s*\()", head + seen[begin:end]):  # no variable
                for call in re.finditer(rf"(?<![\w.:>]){name}\s*\(", seen[begin:end]):
                    before = seen[begin : begin + call.start()].rstrip()
                    word = re.search(r"(?:\w+|>)$", before)  # of a type, in a declaration
                    if word is None or word[0] in ("return", "else"):
                        marks[begin + call.start()] = name
    parts, done = [], 0
    for place in sorted(marks):
        parts += [text[done:place], _MARK.format(marks[place])]
        done = place
    return "".join(parts) + text[done:]


def _bodies(seen: str) -> Iterator[tuple[str, int, int]]:
    """What is in braces in no function or type, with what stands before it."""
    depth = start = begin = 0
    head = ""
    for match in re.finditer(r"[{};]", seen):
        brace, place = match[0], match.start()
        if brace == "{":
            if depth == 0 and _SCOPE.search(seen, start, place):
                start = place + 1
                continue
            if depth == 0:
                head, begin = seen[start:place], place
            depth += 1
        elif brace == "}" and depth > 0:
            depth -= 1
            if depth == 0:
                yield head, begin, place
                start = place + 1
        elif depth == 0:
            start = place + 1


def _host_functions(text: str, seen: str, heads: list[str]) -> list[str]:
    """Functions that are defined without __device__, and have no other declaration with it."""
    found = [match["name"] for head in heads if (match := _HOST_FUNCTION.fullmatch(head))]
    return [
        name
        for name in dict.fromkeys(found)
        if not re.search(rf"__device__[^;{{}}]*\b{name}\s*\(|\bstruct\s+{name}\b", seen)
        and not re.search(rf"#\s*define\s+{name}\b", text)
        and sum(1 for head in heads if re.search(rf"\b{name}\s*\(", head)) == 1
    ]
