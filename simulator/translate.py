#!/usr/bin/env python3
"""Turns the spellings of CUDA that no host compiler reads into C++, for the simulator.

    kernel<T><<<grid, block>>>(args)  ->  SIMULATOR_LAUNCH((kernel<T>), (grid, block), (args))
    extern __shared__ float tile[];   ->  float *const tile = ...;
    __shared__ float a[4], b;         ->  references to where the block keeps them
    __global__ void __cluster_dims__(2) kernel() {  ->  tells the simulator first of all
    __tile_global__ void kernel() {  ->  likewise

Nothing else is touched, and no line moves: a #line in front makes compilers and debuggers show the
original file. The macro and what stands after it are in launch.hpp.

usage: translate.py SOURCE RESULT
"""

import re
import sys

TOKEN = re.compile(r"""
    (?P<blank>   \s+ | \\\n | //(?:\\\n|[^\n])* | /\*.*?\*/ )
  | (?P<string>  (?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
               | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" | (?:u8|[uUL])?'(?:\\.|[^'\\\n])+' )
  | (?P<number>  \.?\d(?:'?\w|[eEpP][+-]|\.)* )
  | (?P<name>    [A-Za-z_$][\w$]* )
  | (?P<sign>    <<<(?!=) | <<=? | <=>? | >= | -> | :: | . )
""", re.VERBOSE | re.DOTALL)
CLOSING = {")": "(", "]": "[", "}": "{"}
CLUSTERS = ("__cluster_dims__", "HOPPER_CLUSTER")  # the latter is CUDA's where there are clusters
NOT_A_KERNEL = {"return", "else", "do", "case", "co_return", "co_yield", "and", "or", "not"}


class TranslationError(Exception):
    """What is wrong, as FILE:LINE: message."""


class Translation:
    """One file's tokens, and the text to put in place of some of them."""

    def __init__(self, text, path):
        self.text, self.path = text, path
        matches = list(TOKEN.finditer(text))
        self.blanks = [m.lastgroup == "blank" for m in matches]
        self.kinds = [m.lastgroup for m in matches]
        self.tokens = [m.group() for m in matches]
        self.replace = {}  # index of a token -> its new text
        self.before = {}  # index of a token -> text in front of it

    def error(self, i, message):
        line = 1 + sum(token.count("\n") for token in self.tokens[:i])
        return TranslationError(f"{self.path}:{line}: {message}")

    def step(self, i, by):
        """The nearest token after (by=1) or before (by=-1) i that is no blank; None at the end."""
        i += by
        while 0 <= i < len(self.tokens):
            if not self.blanks[i]:
                return i
            i += by
        return None

    def is_sign(self, i, *signs):
        return i is not None and self.kinds[i] == "sign" and self.tokens[i] in signs

    def is_name(self, i, *names):
        return i is not None and self.kinds[i] == "name" and (not names or self.tokens[i] in names)

    def opens_template(self, i):
        """Whether this `<` opens template arguments: no blank parts it from the name before. A
        comparison has blanks around it, in source that clang-format laid out."""
        return self.is_sign(i, "<") and i > 0 and self.kinds[i - 1] == "name"

    def group_end(self, i):
        """The bracket that closes the one at i."""
        depth = 0
        for j in range(i, len(self.tokens)):
            if self.is_sign(j, *"([{"):
                depth += 1
            elif self.is_sign(j, *")]}"):
                depth -= 1
                if depth == 0:
                    return j
        raise self.error(i, f"no end to this {self.tokens[i]}")

    def group_start(self, i, is_open):
        """The bracket that the one at i closes; `is_open` says which `<` is one."""
        depth = angles = 0
        closes_template = self.tokens[i] == ">"
        for j in range(i, -1, -1):
            if self.is_sign(j, *")]}"):
                depth += 1
            elif self.is_sign(j, *"([{"):
                depth -= 1
                if depth < 0:
                    return None
            elif depth == 0 and self.is_sign(j, ">"):
                angles += 1
            elif depth == 0 and angles and self.is_sign(j, "<") and is_open(j):
                angles -= 1
            if depth == 0 and angles == 0 and (closes_template or not self.is_sign(j, ">")):
                return j
        return None

    def kernel_start(self, launch):
        """The first token of the expression in front of `<<<`: name, ns::name<T>, table[i].kernel,
        (condition ? one : other)."""
        i = self.step(launch, -1)
        while i is not None:
            if self.is_sign(i, ">"):
                start = self.group_start(i, self.opens_template)
                if start is None or not self.is_name(self.step(start, -1)):
                    start = self.group_start(i, lambda j: True)
                i = start and self.step(start, -1)
            while self.is_sign(i, "]", ")"):  # table[i], get(x), or an expression in parentheses
                parentheses = self.is_sign(i, ")")
                i = self.group_start(i, lambda j: False)
                if parentheses and not (i and self.kinds[i - 1] == "name"):
                    break
                i = i and self.step(i, -1)
            if i is None or not (self.is_name(i) or self.is_sign(i, "(")):
                break
            joint = self.step(i, -1)
            if self.is_name(i) and self.is_name(joint, "template"):
                i, joint = joint, self.step(joint, -1)
            if not self.is_sign(joint, "::", ".", "->"):
                return i
            before = self.step(joint, -1)
            if self.is_sign(joint, "::") and not (
                    self.is_sign(before, ">") or
                    self.is_name(before) and self.tokens[before] not in NOT_A_KERNEL):
                return joint  # ::kernel
            i = before
        raise self.error(launch, "no kernel in front of this <<<")

    def launch_end(self, launch, is_open):
        """The first `>` of the `>>>` that ends a launch's configuration; None if there is none."""
        i, angles = launch + 1, 0
        while i < len(self.tokens) - 3:
            if self.is_sign(i, *"([{"):
                i = self.group_end(i)
            elif self.is_sign(i, *")]};", "<<<"):
                return None
            elif is_open(i):
                angles += 1
            elif self.is_sign(i, ">"):
                if angles:
                    angles -= 1
                elif (self.tokens[i:i + 3] == [">"] * 3 and self.is_sign(self.step(i + 2, 1), "(")):
                    return i
            i += 1
        return None

    def translate_launch(self, launch):
        end = self.launch_end(launch, self.opens_template)
        if end is None:
            end = self.launch_end(launch, lambda i: False)
        if end is None:
            raise self.error(launch, "no >>>( to end this launch")
        kernel = self.kernel_start(launch)
        arguments = self.step(end + 2, 1)
        close = self.group_end(arguments)
        self.before[kernel] = "SIMULATOR_LAUNCH((" + self.before.get(kernel, "")
        self.replace[launch] = "), ("
        self.replace.update({end: "), ", end + 1: "", end + 2: ""})
        self.replace[close] = "))"

    def in_a_directive(self, i):
        """Whether the line begins with a #."""
        while i > 0 and "\n" not in self.tokens[i]:
            i -= 1
        return self.is_sign(self.step(i, 1) if i else 0, "#")

    def in_parentheses(self, opening):
        return "".join(self.tokens[opening + 1:self.group_end(opening)])

    def erase(self, first, last):
        """Removes the tokens from first to last, but not their line breaks."""
        for i in range(first, last + 1):
            self.replace[i] = "\n" * self.tokens[i].count("\n")

    def translate_shared(self, extern):
        """`extern __shared__ T name[]...;`, alignment anywhere in it or in front of it."""
        end, shared, name, square, alignment = extern, False, None, None, ""
        while not self.is_sign(end, ";", "{", "("):
            following = self.step(end, 1)
            if self.is_name(end, "__shared__"):
                shared = True
                self.erase(end, end)
            elif self.is_name(end, "alignas", "__align__") and self.is_sign(following, "("):
                following, alignment = self.group_end(following), self.in_parentheses(following)
                self.erase(end, following)
                following = self.step(following, 1)
            elif self.is_sign(end, "[") and square is None:
                square = end
                name = self.step(end, -1)
            end = following
            if end is None:
                break
        if not shared:
            self.replace = {i: t for i, t in self.replace.items() if not extern <= i}
            return
        if not self.is_sign(end, ";") or square is None or not self.is_name(name):
            raise self.error(extern, "expected: extern __shared__ TYPE NAME[];")
        self.erase(extern, extern)
        self.erase(square, self.group_end(square))
        rows = self.is_sign(self.step(self.group_end(square), 1), "[")  # T name[][columns]
        self.before[name] = "(*const " if rows else "*const "
        self.replace[name] = self.tokens[name] + ")" * rows
        before = self.step(extern, -1)
        if self.is_sign(before, ")"):  # alignas(16) extern __shared__ ...
            opening = self.group_start(before, lambda j: False)
            start = self.step(opening, -1)
            if self.is_name(start, "alignas", "__align__"):
                alignment = self.in_parentheses(opening)
                self.erase(start, before)
        self.before[end] = f" = ::simulator::dynamic_shared({alignment})"
        self.replace[end] = self.name_shared(self.tokens[name])

    def translate_static_shared(self, shared):
        """`__shared__ T a[4], b;`, alignment in front of it or behind it: the variables become
        members of a type of their own, of which every block has one."""
        first = self.step(shared, -1)
        start = shared
        while self.is_sign(first, ")"):  # alignas(16) __shared__ ...
            name = self.step(self.group_start(first, lambda j: False), -1)
            if not self.is_name(name, "alignas", "__align__"):
                break
            start, first = name, self.step(name, -1)
        names, end = [], shared
        while not self.is_sign(end, ";"):
            following = self.step(end, 1)
            if self.is_sign(end, "(", "[", "{"):
                following = self.step(self.group_end(end), 1)
            if self.is_sign(end, "<") and self.opens_template(end):
                following = self.step(self.template_end(end), 1)
            if self.is_name(end) and self.is_sign(following, ";", ",", "["):
                names.append(self.tokens[end])
            end = following
            if end is None or self.is_sign(end, "="):
                raise self.error(shared, "expected: __shared__ TYPE NAME[...], ...;")
        if not names:
            raise self.error(shared, "expected: __shared__ TYPE NAME[...], ...;")
        kind = f"simulator_shared_{names[0]}"
        self.erase(shared, shared)
        self.before[start] = f"struct {kind} {{ " + self.before.get(start, "")
        self.replace[end] = "; };" + "".join(
            f" auto& {name} = ::simulator::static_shared<{kind}>().{name}" + self.name_shared(name)
            for name in names)

    @staticmethod
    def name_shared(name):
        return f'; ::simulator::name_shared({name}, "{name}");'

    def template_end(self, i):
        """The `>` that closes the template arguments that open at i."""
        depth = 0
        for j in range(i, len(self.tokens)):
            depth += self.is_sign(j, "<")
            depth -= self.is_sign(j, ">")
            if depth == 0:
                return j
        raise self.error(i, "no end to this <")

    def begin_body(self, i, after, call):
        """Puts a call in front of what a kernel does: the body is the first after this token."""
        body = after
        while not self.is_sign(body, "{", ";"):
            body = self.step(self.group_end(body) if self.is_sign(body, "(") else body, 1)
            if body is None:
                raise self.error(i, "no kernel behind this")
        if self.is_sign(body, "{"):
            self.replace[body] = self.replace.get(body, "{") + f" ::simulator::{call};"

    def translate_cluster(self, i):
        """`__cluster_dims__(blocks)` of a kernel: its body begins by saying so."""
        opening = self.step(i, 1)
        if self.is_sign(opening, "("):
            self.begin_body(i, self.group_end(opening),
                            f"cluster_dims({self.in_parentheses(opening)})")

    def result(self):
        for i, token in enumerate(self.tokens):
            if self.kinds[i] == "sign" and token == "<<<":
                self.translate_launch(i)
            elif self.is_name(i, "extern"):
                self.translate_shared(i)
            elif self.is_name(i, "__shared__") and i not in self.replace:
                self.translate_static_shared(i)
            elif self.is_name(i, *CLUSTERS) and not self.in_a_directive(i):
                self.translate_cluster(i)
            elif self.is_name(i, "__tile_global__") and not self.in_a_directive(i):
                self.begin_body(i, i, "tile_block()")
        parts = [self.before.get(i, "") + self.replace.get(i, token)
                 for i, token in enumerate(self.tokens)]
        return f'#line 1 "{self.path}"\n' + "".join(parts)


def translate(text, path):
    """The C++ for a CUDA file's text; `path` is what compilers and debuggers will call it."""
    return Translation(text, path).result()


def translate_file(source, result):
    with open(source, encoding="utf-8") as file:
        text = translate(file.read(), source)
    with open(result, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip().splitlines()[-1])
    try:
        translate_file(*sys.argv[1:])
    except (TranslationError, OSError) as error:
        sys.exit(str(error))
