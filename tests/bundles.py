"""One program of many, to compile what they share once: mutants, above all, which differ from their
program in a line or two.

Each text is taken apart into pieces (functions, types, constants: what stands at the left margin).
A piece's version is its own text and that of all that it uses. Where two programs have the same
version of a piece they share it; where not, the later ones' name gets a number: multiply, then
multiply_2, and so it is called in all that uses it, which is of another version, too.

Names are told apart by their words alone: what is called the same in two namespaces has one version
together, and a word after . or -> is a member's. Where that is wrong the compiler says so."""

import functools
import re
from typing import FrozenSet, NamedTuple, Tuple

INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
NO_CODE = r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'"""
WORD = re.compile(NO_CODE + r"|\b(?P<word>[A-Za-z_]\w*)(?P<after>::)?", re.DOTALL)
QUALIFIED = re.compile(r"(?<!\.)\.$|->$|(?P<space>\w*>?)::$|using namespace $")
# What may stand in front of a name, with brackets that are not its parameters'.
ATTRIBUTE = re.compile(
    r"\[\[.*?\]\]|\b(?:__launch_bounds__|HOPPER_CLUSTER|__cluster_dims__|alignas)\s*"
    r"\((?:[^()]|\([^()]*\))*\)")


class Piece(NamedTuple):
    """A declaration at the left margin."""

    spaces: Tuple[str, ...]  # the namespaces around it
    text: str
    place: str  # the #line of its first line; empty where the text has none
    names: Tuple[str, ...]  # that it defines
    words: FrozenSet[str]  # that stand in it
    members: FrozenSet[str]  # of the class that it defines


@functools.lru_cache(maxsize=None)
def code_of(text):
    """The text without comments, and with empty strings."""
    return re.sub(NO_CODE, lambda match: '""' if match[0][0] == '"' else " ", text, flags=re.DOTALL)


def without(opening, closing, code):
    """The code without what is in these brackets."""
    kept, depth = [], 0
    for part in re.split(rf"([\{opening}\{closing}])", code):
        depth += (part == opening) - (part == closing)
        if depth == 0:
            kept.append(part)
    return "".join(kept)


def without_arguments(code):
    """The code without what is in <...>."""
    shorter = re.sub(r"<[^<>(){};]*(\([^<>(){};]*\)[^<>(){};]*)*>", "", code)
    return code if shorter == code else without_arguments(shorter)


@functools.lru_cache(maxsize=None)
def names_in(text):
    """The names that a piece defines, and its members', where it is a class."""
    code = code_of(text).lstrip()
    if code.startswith("#if"):
        pieces = [piece for part in re.split(r"^#.*\n", code, flags=re.MULTILINE)
                  for piece in pieces_of(part)]
        return tuple(name for piece in pieces for name in piece.names), frozenset()
    if code.startswith("#"):
        return tuple(re.findall(r"^#\s*define (\w+)", code)), frozenset()
    if code.startswith(("using namespace", "static_assert")):
        return (), frozenset()
    head = without_arguments(ATTRIBUTE.sub("", re.sub(r"^template\s*(?=<)", "", code))).lstrip()
    declared = re.match(r"(?:struct|class|union|enum(?: class)?)\b\s*(\w+)", head)
    if declared:
        body = code.partition("{")[2].rpartition("}")[0]
        body = without("(", ")", without("{", "}", body))
        body = re.sub(r"(?<!operator)(?<!=)=(?!=)[^,;]*", "=", body)  # what members begin as
        members = re.findall(r"(?<!operator )\b(\w+)\s*(?=[;=,:\[)}]|$)", body, re.MULTILINE)
        return (declared[1],), frozenset(members) - {declared[1]}
    if head.startswith("using") and "=" not in head:
        return tuple(re.findall(r"(\w+)\s*[,;]", head)), frozenset()
    if head.startswith(("using", "namespace")):
        return (re.match(r"\w+\s+(\w+)", head)[1],), frozenset()
    function = re.match(r"[^=;{]*?\b(\w+)\s*\(", head)
    if function:
        return (function[1],), frozenset()
    head = without("[", "]", without("{", "}", without("(", ")", head)))
    declarators = [each.partition("=")[0] for each in head.partition(";")[0].split(",")]
    return tuple(re.findall(r"\w+", each)[-1] for each in declarators), frozenset()


def is_whole(text):
    """Whether these lines are whole declarations, or none."""
    code = code_of(text).strip()
    if not code:
        return True
    if code.startswith("#"):
        return len(re.findall(r"^#\s*if", code, re.M)) == len(re.findall(r"^#\s*endif", code, re.M))
    return code.endswith((";", "}")) and all(
        code.count(opening) == code.count(closing) for opening, closing in ("{}", "()", "[]"))


def is_free(match, spaces, members):
    """Whether this word may be the name of a piece: no member's, no namespace's, nor one that
    another namespace than these has."""
    word = match["word"]
    before = QUALIFIED.search(match.string, max(0, match.start() - 60), match.start())
    if before:
        return before["space"] is not None and before["space"] in spaces
    return not (match["after"] and word in spaces) and word not in members


@functools.lru_cache(maxsize=None)
def piece(spaces, text, place, all_spaces):
    """The piece of this text; `all_spaces` are the namespaces of its program."""
    names, members = names_in(text)
    imported = re.match(r"using (\w+)::", code_of(text).strip())
    if imported and imported[1] not in all_spaces:  # what a header defines keeps its name
        names = ()
    words = frozenset(match["word"] for match in WORD.finditer(text)
                      if match["word"] and is_free(match, all_spaces, members))
    return Piece(spaces, text, place, names, words, members)


def spaces_of(text):
    """The names of its namespaces, and that of the one around them."""
    return frozenset({"", *re.findall(r"^namespace (\w+) \{", text, re.MULTILINE)})


@functools.lru_cache(maxsize=None)
def pieces_of(text):
    """The text's pieces, in their order."""
    pieces, spaces, lines, file, number, place = [], (), [], "", 0, ""
    all_spaces = spaces_of(text)

    def end():
        if code_of("".join(lines)).strip():
            pieces.append(piece(spaces, "".join(lines), place, all_spaces))
        lines.clear()

    for line in text.splitlines(keepends=True):
        at = re.match(r'#line (\d+) "(.*)"', line)
        number = int(at[1]) - 1 if at else number + 1
        file = at[2] if at else file
        opened = re.match(r"namespace ([\w:]*) ?\{", line)
        whole = re.match(r"[\w\[#}]", line) and is_whole("".join(lines))
        if opened or at or whole and line.startswith("}"):
            end()
            if not at:
                spaces = spaces + (opened[1],) if opened else spaces[:-1]
            continue
        if not lines or whole:
            end()
            place = f'#line {number} "{file}"\n' if file else ""
        lines.append(line)
    end()
    return pieces


def versions_of(pieces):
    """({name: its version}, the names that main() needs). A version is what defines the name, and
    all that it uses."""
    defining = {}
    for each in pieces:
        for name in each.names:
            defining.setdefault(name, []).append(each)
    uses = {name: frozenset().union(*(each.words for each in those)) & defining.keys()
            for name, those in defining.items()}

    def reached(names):
        found, new = set(), set(names)
        while new:
            found |= new
            new = set().union(*(uses[name] for name in new)) - found
        return found

    always = [word for each in pieces if not each.names for word in each.words & defining.keys()]
    needed = reached(["main", *always])
    number = {name: tuple(map(id, those)) for name, those in defining.items()}  # they are cached
    return {name: frozenset(number[other] for other in reached([name]))
            for name in needed}, needed


def renamed(each, called, spaces):
    """A piece's text with these names' new ones."""
    def new(match):
        word = match["word"]
        if word not in called or not is_free(match, spaces, each.members):
            return match[0]
        return called[word] + (match["after"] or "")

    return WORD.sub(new, each.text)


def share(texts):
    """The pieces of {name: text of a program}, each version once; and {name: what its main() is
    called}."""
    parts, mains = [], {}
    known = {}  # {name: {version: what that is called}}
    written = set()  # texts without a name
    for program, text in texts.items():
        pieces, spaces = pieces_of(text), spaces_of(text)
        versions, needed = versions_of(pieces)
        called, new = {}, set()
        for name in needed:
            calls = known.setdefault(name, {})
            if versions[name] not in calls:
                calls[versions[name]] = f"{name}_{len(calls) + 1}" if calls else name
                new.add(name)
            if calls[versions[name]] != name:
                called[name] = calls[versions[name]]
        mains[program] = called.get("main", "main")
        for each in pieces:
            if each.names and new.isdisjoint(each.names):
                continue
            text = renamed(each, called, spaces)
            if not each.names:
                if (each.spaces, text) in written:
                    continue
                written.add((each.spaces, text))
            around = "".join(f"namespace {space} {{ " for space in each.spaces)
            parts.append(f"{around}\n{each.place}{text}{'}' * len(each.spaces)}\n")
    return "".join(parts), mains


def apart(texts):
    """{name: text of a program} for all_in_one(), where each keeps all its names."""
    return {name: {name: text} for name, text in texts.items()}


def all_in_one(programs):
    """One program of {namespace: {name: text of a program}}: its first argument is a name, and
    chooses. Those of one namespace share their pieces; all share what they include."""
    includes, parts, choices = [], [], []
    for space, texts in programs.items():
        includes += [line for text in texts.values() for line in INCLUDE.findall(text)]
        shared, mains = share({name: INCLUDE.sub("\n", text) for name, text in texts.items()})
        parts.append(f"namespace {space} {{\n{shared}}}  // namespace {space}\n")
        choices += [f'    if (name == "{name}") return {space}::{main}(argc, argv);\n'
                    for name, main in mains.items()]
    return "".join([*dict.fromkeys(includes), *parts, "int main(int argc, char** argv) {\n",
                    '    const std::string name = argc-- > 1 ? *++argv : "";\n', *choices,
                    "    return demo::kUsage;\n}\n"])
