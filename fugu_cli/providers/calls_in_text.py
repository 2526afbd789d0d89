"""Finds tool calls that a server left in the text of a reply, because it runs without the parser of
its model.

Every family of models marks its calls in its own way. `FORMATS` lists how a call is written; `MARK`
matches the marks around calls in all of them. Marks that are quoted in prose or in code are part of
an answer. `TextCallReader` keeps marks from being shown while a reply is streamed. Pure.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pydantic import JsonValue

from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, Reply, Thinking, ToolSpec
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.system.bounded_json import check_depth, parse_json

Arguments = dict[str, JsonValue]
ArgumentTypes = Mapping[str, Mapping[str, str]]
"""The JSON types of each tool's arguments, by tool and argument; "" for any type."""

_NAME = r"[\w.:/-]+"
_MARK_TEXT = (
    r"</?[|｜]?/?(?:\w+[:｜|_])?(?:tool|function)[_▁:-]?calls?(?:[_▁]section)?(?:[_▁](?:begin|end))?[|｜]?>"
    r"|\[/?TOOL_CALLS\]|<\|python_(?:tag|start|end)\|>|<\|(?:start|end)_action\|>"
    r"|<\|action_(?:start|end)\|>|<\|plugin\|>"
)
MARK = re.compile(_MARK_TEXT, re.IGNORECASE)
"""Opens or closes calls: `<tool_call>`, `<minimax:tool_call>`, `<｜DSML｜function_calls>`,
`<|tool_calls_section_begin|>`, `<｜tool▁calls▁begin｜>`, `[TOOL_CALLS]`, `<|python_tag|>`, ...
"""
_CLOSES = re.compile(r"/|[_▁]end|<end_|<\w+\|>", re.IGNORECASE)
_END_OF_REPLY = (
    r"<\|(?:im_end|eot_id|eom_id|eot|end|call|return|end_of_text|endoftext|user)\|>|</s>|<eos>"
    r"|<end_of_turn>|<｜end▁of▁sentence｜>"
)
_BETWEEN_CALLS = re.compile(rf"(?:\s|;|{_MARK_TEXT}|{_END_OF_REPLY})*", re.IGNORECASE)
_INVENTED_RESULT = re.compile(
    r"<(?:\w+:)?(?:tool_response|tool_results?|function_results?)>|<｜tool▁outputs▁begin｜>"
    r"|<\|start\|>functions|<\|im_start\|>|<\|observation\|>|<\|start_header_id\|>"
)
"""The model went on with a result of its own making."""
_HARMONY_HEADER = (
    r"(?:<\|start\|>|<\|channel\|>|(?:^|assistant)(?:commentary|analysis)(?= to=)"
    r"|^(?=to=functions\.))"
)
_INVOKE = r"<[|｜]?(?:\w+[:｜|])?invoke\b"
_OPENING = re.compile(
    rf"{_MARK_TEXT}|<function(?:=|\s+name=)|{_INVOKE}|{_HARMONY_HEADER}",
    re.IGNORECASE | re.MULTILINE,
)
_BEGIN_OF_OPENING = re.compile(r"(?:<[^\s>]{0,40}|<function\s+\w{0,4}|\[/?[A-Z_]{0,10})\Z")
_HEADERS = ("assistantcommentary to=", "assistantanalysis to=")
_HEADERS_OF_LINES = ("commentary to=", "analysis to=", "to=functions.")
"""Headers that count at the beginning of a line alone."""


def _beginnings(headers: Sequence[str]) -> frozenset[str]:
    beginnings = set()
    for header in headers:
        for length in range(1, len(header) + 1):
            beginnings.add(header[:length])
    return frozenset(beginnings)


_HEADER_BEGINNINGS = _beginnings(_HEADERS)
_LINE_BEGINNINGS = _beginnings(_HEADERS_OF_LINES)
_CUT_MARK = re.compile(r"\s*(?:<[^<>]{0,80}|`{1,3})\Z")
"""The beginning of a mark or tag at the end of a reply."""
_TAG_OR_HEADER = re.compile(
    r"<[^<>]*>|\[/?TOOL_CALLS\]|\[ARGS\]|```\w*"
    r"|(?:assistant)?(?:commentary|analysis)? ?to=[\w.]*(?: (?:json?|code?|js?|co?))?"
    r"|(?:assistant|commentary|analysis) [a-z]{0,4}\Z"
)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_WHOLE_JSON = re.compile(
    r"\s*(?:```(?:json|tool_calls?)?\s*\n)?([\[{].*[\]}])\s*`{0,3}\s*", re.DOTALL
)
_WHOLE_TOOL_CODE = re.compile(r"\s*```tool_code\s*\n(.*?)\s*```\s*", re.DOTALL)
"""Python in which Gemini writes its calls."""
_WHOLE_OPENING = re.compile(
    r"\s*(?:```(?:json|tool_calls?)?\s*)?\[?\s*\{\s*"
    r'"(?:name|tool_name|tool_calls|function_call|function|type|id|arguments|parameters)"'
    r"|\s*```tool_code\b"
)
"""The beginning of a reply that may be nothing but calls."""
_NAME_IN_JSON = re.compile(r'"(?:name|tool_name)"\s*:\s*"([^"]+)"')
_BEGIN_OF_WHOLE_OPENING = re.compile(r"\s*(?:`{1,3}\w*\s*)?\[?\s*(?:\{\s*(?:\"\w*)?)?")


class _UnreadableCallError(Exception):
    """A call that begins but cannot be read to its end. `tool` is its name, "" if that is cut off."""

    def __init__(self, tool: str) -> None:
        super().__init__(tool)
        self.tool = tool


@dataclass(frozen=True)
class WrittenCall:
    """A call that was read from a text."""

    tool: str
    arguments: Arguments


ReadBody = Callable[[str, "re.Match[str]", ArgumentTypes], "tuple[list[WrittenCall], int] | None"]
"""Read the calls whose opening matched. Return them and the position after them, or None if this is
no call. Raises _UnreadableCallError."""


@dataclass(frozen=True)
class CallFormat:
    """One way in which models write calls. If `bare`, the opening needs no mark before it."""

    opening: re.Pattern[str]
    read: ReadBody
    bare: bool = False


def _tagged(parameter: str, closing: str) -> ReadBody:
    """Return a reader of calls with one pair of tags for each argument."""
    parameter_pattern = re.compile(parameter, re.DOTALL | re.IGNORECASE)
    closing_pattern = re.compile(closing, re.IGNORECASE)
    opening_pattern = re.compile(r"</?[|｜]?(?:\w+[:｜|_])?(?:param|arg|$)|<?/?$", re.IGNORECASE)

    def read(
        text: str, opening: re.Match[str], types: ArgumentTypes
    ) -> tuple[list[WrittenCall], int] | None:
        tool, position = plain_tool_name(opening["name"], types), opening.end()
        arguments: Arguments = {}
        while match := parameter_pattern.match(text, position):
            parts = match.groupdict()
            json_type = types.get(tool, {}).get(parts["key"], "")
            if parts.get("string"):
                json_type = "string" if parts["string"].lower() == "true" else ""
            arguments[parts["key"].strip()] = _typed_argument(parts["value"], json_type)
            position = match.end()
        if closing_match := closing_pattern.match(text, position):
            return [WrittenCall(tool, arguments)], closing_match.end()
        if arguments or opening_pattern.match(text, position):
            raise _UnreadableCallError(tool)
        return None

    return read


def _typed_argument(text: str, json_type: str) -> JsonValue:
    """Return the value of an argument that was written as plain text."""
    if json_type != "string":
        with suppress(ValueError):
            value: JsonValue = parse_json(text)
            return value
    return text


def _named_object(
    text: str, opening: re.Match[str], types: ArgumentTypes
) -> tuple[list[WrittenCall], int] | None:
    """Read a call whose name is followed by its arguments as a JSON object."""
    tool = plain_tool_name(opening["name"], types)
    value, end = _json_at(text, opening.end())
    if not isinstance(value, dict):
        raise _UnreadableCallError(tool)
    closing = re.compile(r"\s*(?:```|</function>)").match(text, end)
    return [WrittenCall(tool, value)], closing.end() if closing else end


def _json_calls(
    text: str, opening: re.Match[str], types: ArgumentTypes
) -> tuple[list[WrittenCall], int] | None:
    """Read an object with a name and arguments, or a list of such objects."""
    value, end = _json_at(text, opening.end())
    if value is None:
        rest = text[opening.end() :]
        if not re.match(r'\[?\s*(?:$|\{\s*(?:$|"))', rest):
            return None
        name = _NAME_IN_JSON.search(rest)
        raise _UnreadableCallError(plain_tool_name(name[1], types) if name else "")
    calls = calls_in_json(value)
    if calls is None:
        return None
    return [WrittenCall(plain_tool_name(call.tool, types), call.arguments) for call in calls], end


def _python_calls(
    text: str, opening: re.Match[str], types: ArgumentTypes
) -> tuple[list[WrittenCall], int] | None:
    """Read calls that are written as Python: `[read(path="x")]`, `read.call(path="x")`."""
    closing = MARK.search(text, opening.end())
    end = closing.start() if closing else len(text)
    source = re.sub(rf"(?:{_END_OF_REPLY})\s*$", "", text[opening.start() : end].strip())
    tool = plain_tool_name(opening["name"], types)
    try:
        expression = ast.parse(source, mode="eval").body
        nodes = expression.elts if isinstance(expression, ast.List) else [expression]
        calls = []
        for node in nodes:
            call = _python_call(node)
            name = call.tool.removesuffix(".call")
            calls.append(WrittenCall(plain_tool_name(name, types), call.arguments))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _UnreadableCallError(tool) from error
    return calls, end


def _unreadable(
    text: str, opening: re.Match[str], types: ArgumentTypes
) -> tuple[list[WrittenCall], int] | None:
    raise _UnreadableCallError(plain_tool_name(opening["name"], types))


FORMATS = (
    CallFormat(  # gpt-oss
        re.compile(
            r"(?:<\|start\|>)?(?:assistant)?\s*(?:<\|channel\|>)?\s*(?:commentary|analysis)?\s*"
            rf"to=(?P<name>{_NAME}?)\s*(?:<\|channel\|>\s*(?:commentary|analysis)\s*)?"
            r"(?:<\|constrain\|>)?\s*(?:json|code)?\s*(?:<\|message\|>)?\s*(?=\{|(?:<\|?\w*)?\Z)"
        ),
        _named_object,
        bare=True,
    ),
    CallFormat(  # Llama 3
        re.compile(rf"<function(?:=|\s+name=)[\"']?(?P<name>{_NAME})[\"']?>\s*(?=\{{)"),
        _named_object,
        bare=True,
    ),
    CallFormat(  # Qwen Coder, Seed
        re.compile(rf"<function(?:=|\s+name=)[\"']?(?P<name>{_NAME})[\"']?>\s*"),
        _tagged(
            rf"<parameter=(?P<key>{_NAME})>\n?(?P<value>.*?)\n?</parameter>\s*"
            r"(?=<parameter=|</function>|\Z)",
            r"</function>",
        ),
        bare=True,
    ),
    CallFormat(  # Claude, MiniMax, DeepSeek's DSML, Step
        re.compile(rf"{_INVOKE}\s+name=[\"'](?P<name>{_NAME})[\"']\s*>\s*", re.IGNORECASE),
        _tagged(
            r"<[|｜]?(?:\w+[:｜|])?parameter\s+name=[\"'](?P<key>[^\"'>]+)[\"']"
            r"(?:\s+string=[\"'](?P<string>true|false)[\"'])?[^>]*>(?P<value>.*?)"
            r"</[|｜]?(?:\w+[:｜|])?parameter>\s*"
            r"(?=<[|｜]?(?:\w+[:｜|])?parameter\s|</[|｜]?(?:\w+[:｜|])?invoke>|\Z)",
            r"</[|｜]?(?:\w+[:｜|])?invoke>",
        ),
        bare=True,
    ),
    CallFormat(  # GLM, LongCat
        re.compile(rf"(?P<name>{_NAME})\s*(?=<(?:\w+_)?arg_|</(?:\w+_)?tool_call>)"),
        _tagged(
            r"<(?:\w+_)?arg_key>(?P<key>.*?)</(?:\w+_)?arg_key>\s*"
            r"<(?:\w+_)?arg_value>(?P<value>.*?)</(?:\w+_)?arg_value>\s*"
            r"(?=<(?:\w+_)?arg_key>|</(?:\w+_)?tool_call>|\Z)",
            r"(?=</(?:\w+_)?tool_call>)",
        ),
    ),
    CallFormat(  # Gemma
        re.compile(rf"call:(?P<name>{_NAME})\s*\{{"), _unreadable
    ),
    CallFormat(  # Kimi, DeepSeek, Mistral
        re.compile(
            rf"(?:function\s*<｜tool[▁_]sep｜>\s*)?(?P<name>{_NAME})\s*"
            r"(?:<\|tool_call_argument_begin\|>|<｜tool[▁_]sep｜>|(?:\[CALL_ID\][\w-]*)?\[ARGS\])?"
            r"\s*(?:```(?:json)?\s*)?(?=\{|(?:<[|｜]?[\w▁]*)?\Z)"
        ),
        _named_object,
    ),
    CallFormat(  # Qwen, Hermes, Mistral, Llama, Phi, Granite, Command
        re.compile(r"(?=[\[{])"), _json_calls
    ),
    CallFormat(  # Llama, Olmo
        re.compile(r"\[?\s*(?P<name>[A-Za-z_][\w.]*)\("), _python_calls
    ),
)


def _json_at(text: str, position: int) -> tuple[JsonValue, int]:
    """Return the JSON value at a position and its end; the value is None if there is none."""
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, position)
        check_depth(value)
    except (ValueError, RecursionError):
        return None, position
    return value, end


def calls_in_json(value: JsonValue) -> list[WrittenCall] | None:
    """Return the calls in a JSON value; None if it holds anything besides calls."""
    calls = []
    for item in value if isinstance(value, list) else [value]:
        inner = item.get("function", item) if isinstance(item, dict) else None
        call = inner if isinstance(inner, dict) else {}
        name = call.get("name", call.get("tool_name"))
        arguments = call.get("arguments", call.get("parameters"))
        if isinstance(arguments, str):
            arguments = _json_at(arguments, 0)[0]
        names = {"name", "tool_name", "arguments", "parameters", "id", "type", "tool_call_id"}
        if not (call.keys() <= names and isinstance(name, str) and isinstance(arguments, dict)):
            return None
        calls.append(WrittenCall(name, arguments))
    return calls or None


_AROUND_NAME = re.compile(
    r"^\s*(?:functions|default_api|tools?)[.:/]|<\|.*$|:\d+\s*$|\s+$|^\s+", re.DOTALL
)
"""Additions to a tool's name: namespaces of OpenAI and Google, marks of gpt-oss, Kimi's numbers."""


def plain_tool_name(name: str, tools: Mapping[str, object] | frozenset[str]) -> str:
    """Return the offered tool that `name` stands for, `name` itself if there is none."""
    plain = _AROUND_NAME.sub("", name)
    for candidate in (name, plain, plain.lower()):
        if candidate in tools:
            return candidate
    return name


class TextCallReader:
    """Reads one streamed reply. Text that may be a call is not shown before the reply has ended."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools
        self._held_back: list[str] = []
        self._has_opening = False
        self._has_shown = False
        self._is_fenced = False
        self._line = ""

    def feed(self, text: str) -> str:
        """Return the text that can be shown now."""
        if not self._tools:
            return text
        self._held_back.append(text)
        if self._has_opening:
            return ""
        pending = "".join(self._held_back)
        shown = pending[: self._length_to_show(pending)]
        self._held_back = [pending[len(shown) :]]
        self._has_shown |= bool(shown)
        finished, _, self._line = (self._line + shown).rpartition("\n")
        self._is_fenced ^= _fences_toggle(finished + "\n", 0, len(finished))
        return shown

    def rest(self) -> str:
        """Return the text that was held back, for a reply that turned out to be an answer."""
        text, self._held_back = "".join(self._held_back), []
        return text

    def _length_to_show(self, pending: str) -> int:
        if not self._has_shown:
            self._has_opening = _WHOLE_OPENING.match(pending) is not None
            if self._has_opening or _BEGIN_OF_WHOLE_OPENING.fullmatch(pending):
                return 0
        text, is_fenced, counted = self._line + pending, self._is_fenced, 0
        for match in _OPENING.finditer(text, len(self._line)):
            is_fenced ^= _fences_toggle(text, counted, match.start())
            counted = match.start()
            if not _is_quoted(text, match.start(), is_fenced=is_fenced):
                self._has_opening = True
                return match.start() - len(self._line)
        begin = _BEGIN_OF_OPENING.search(text, max(len(text) - 60, len(self._line)))
        if begin:
            return begin.start() - len(self._line)
        line = text[text.rfind("\n") + 1 :]
        if line in _LINE_BEGINNINGS:
            return max(len(pending) - len(line), 0)
        longest = max(map(len, _HEADERS))
        for length in range(min(longest, len(pending)), 0, -1):
            if pending[-length:] in _HEADER_BEGINNINGS:
                return len(pending) - length
        return len(pending)


def _fences_toggle(text: str, start: int, end: int) -> bool:
    """Return whether an odd number of fences stands between two positions."""
    return len(_FENCE.findall(text, start, end)) % 2 == 1


def _is_quoted(text: str, position: int, *, is_fenced: bool) -> bool:
    """Return whether the mark at a position is part of an answer that quotes it."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    is_indented_code = line.isspace() and (line.startswith("    ") or "\t" in line)
    return (
        is_fenced
        or is_indented_code
        or line.count("`") % 2 == 1
        or line.lstrip().startswith(">")
        or line[-1:] in ("'", '"', "`", "(", "“", "‘", "«")
    )


def read_calls(reply: Reply, tools: Sequence[ToolSpec], endpoint: ModelEndpoint) -> Reply:
    """Return the reply with the calls that its text ends in, or consists of, as its calls.

    Raises AgentError if the text ends in a call that cannot be read.
    """
    if reply.calls or not tools or reply.stop not in ("end", "length"):
        return reply
    types = {tool.name: _argument_types(tool) for tool in tools}
    visible_text, thought = _without_channels(reply.text)
    try:
        text, calls = _split(visible_text, types)
    except _UnreadableCallError as error:
        raise _unparsed_call_error(endpoint) from error
    thinking = (*reply.thinking, Thinking(text=thought)) if thought else reply.thinking
    update: dict[str, object] = {
        "text": text.rstrip() if calls else visible_text,
        "thinking": thinking,
    }
    if calls:
        update["stop"] = "calls"
        update["calls"] = tuple(
            Call(
                id=f"call_{secrets.token_hex(8)}",
                tool=call.tool,
                arguments=json.dumps(call.arguments, ensure_ascii=False),
            )
            for call in calls
        )
    return reply.model_copy(update=update)


def _split(text: str, types: ArgumentTypes) -> tuple[str, list[WrittenCall]]:
    """Return the text and the calls of a reply. A reply that is an answer has no calls."""
    if calls := _calls_in_whole_reply(text):
        calls = [WrittenCall(plain_tool_name(call.tool, types), call.arguments) for call in calls]
        if all(call.tool in types for call in calls):
            return "", calls
    elif tool := _cut_tool_of_whole_reply(text, types):
        raise _UnreadableCallError(tool)
    texts: list[str] = []
    all_calls: list[WrittenCall] = []
    position = counted = 0
    is_fenced = False
    for match in _OPENING.finditer(text):
        if match.start() < position:
            continue
        is_fenced ^= _fences_toggle(text, counted, match.start())
        counted = match.start()
        if _is_quoted(text, match.start(), is_fenced=is_fenced):
            continue
        try:
            calls, end = _calls_at(text, match.start(), types)
        except _UnreadableCallError as error:
            is_line_start = not text[: match.start()].rpartition("\n")[2].strip()
            if error.tool in types or (not error.tool and is_line_start):
                raise
            calls, end = [], match.end()
        if not calls and _is_cut_off(text, match.start()):
            raise _UnreadableCallError("")
        if calls:
            texts.append(text[position : match.start()])
            all_calls += calls
            position = counted = end
    offered = [call for call in all_calls if call.tool in types]
    if not offered:
        return text, []
    rest = _CUT_MARK.sub("", text[position:])
    if rest.strip() and not _INVENTED_RESULT.match(rest.lstrip()):
        if "".join(texts).strip():
            return text, []  # words before and after: the calls are examples
        raise _UnreadableCallError(offered[0].tool)
    if len(offered) < len(all_calls):
        raise _UnreadableCallError(offered[0].tool)
    return "".join(texts), all_calls


def _is_cut_off(text: str, position: int) -> bool:
    """Return whether the text ends in the call that begins at `position`, before its arguments: marks
    and a name follow, no words.
    """
    before, rest = text[:position], _CUT_MARK.sub("", text[position:])
    if before and before[-1] in " \t" and before.rpartition("\n")[2].strip():
        return False  # the mark stands in a sentence
    lines = [line.strip() for line in _TAG_OR_HEADER.sub("\n", rest).splitlines()]
    words = [line for line in lines if line]
    return len(words) <= 2 and all(len(line.split()) == 1 for line in words)


def _calls_in_whole_reply(text: str) -> list[WrittenCall]:
    """Return the calls of a reply that is nothing but JSON or Gemini's code; [] for any other."""
    if tool_code := _WHOLE_TOOL_CODE.fullmatch(text):
        try:
            return [_python_call(line) for line in ast.parse(tool_code[1]).body]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []
    if whole := _WHOLE_JSON.fullmatch(text):
        value, end = _json_at(whole[1], 0)
        if isinstance(value, dict) and len(value) == 1:
            value = value.get("tool_calls", value.get("function_call", value))
        is_whole = not whole[1][end:].strip()
        return (calls_in_json(value) or []) if is_whole else []
    return []


def _cut_tool_of_whole_reply(text: str, types: ArgumentTypes) -> str:
    """Return the offered tool of a reply that is nothing but the beginning of a call; "" for any
    other.
    """
    if _WHOLE_OPENING.match(text) is None:
        return ""
    start = re.search(r"[\[{]", text)
    value, _ = _json_at(text, start.start() if start else len(text))
    named = _NAME_IN_JSON.search(text) or re.search(rf"\bdefault_api\.({_NAME})\(", text)
    tool = plain_tool_name(named[1], types) if named else ""
    return tool if value is None and tool in types else ""


def _python_call(node: ast.AST) -> WrittenCall:
    """Return the call of `read(path="x")`, or of it inside `print`. Raises ValueError."""
    if isinstance(node, ast.Expr):
        node = node.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "print" and len(node.args) == 1:
        node = node.args[0]
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError(f"not a call with named arguments: {ast.unparse(node)}")
    arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return WrittenCall(ast.unparse(node.func), arguments)


def _calls_at(text: str, position: int, types: ArgumentTypes) -> tuple[list[WrittenCall], int]:
    """Return the consecutive calls from a position on, and their end."""
    calls: list[WrittenCall] = []
    while True:
        between = _BETWEEN_CALLS.match(text, position)
        assert between is not None  # it matches nothing at least
        matches = MARK.findall(between[0])
        is_marked = any(not _CLOSES.search(match) for match in matches) or ";" in between[0]
        body = _body_at(text, between.end(), types, is_marked=is_marked)
        if body is None:
            if is_marked and not calls and not text[between.end() :].strip():
                raise _UnreadableCallError("")
            return calls, between.end()
        calls += body[0]
        position = body[1]


def _body_at(
    text: str, position: int, types: ArgumentTypes, *, is_marked: bool
) -> tuple[list[WrittenCall], int] | None:
    for form in FORMATS:
        if is_marked or form.bare:
            opening = form.opening.match(text, position)
            body = form.read(text, opening, types) if opening else None
            if body is not None:
                return body
    return None


_HARMONY_MESSAGE = re.compile(
    r"\s*(?:<\|start\|>assistant)?\s*<\|channel\|>(?P<header>.*?)<\|message\|>(?P<content>.*?)"
    r"(?:<\|(?:end|return|call)\|>|(?=<\|start\|>|<\|channel\|>)|\Z)",
    re.DOTALL,
)


_CUT_HEADER = re.compile(r"\A\s*(?:<\|start\|>\s*[a-z]*\s*)?(?:<\|channel\|>[\w ]*)?(?:<[^<>]*)?\Z")
"""The beginning of another message, up to the name of its channel."""


def _without_channels(text: str) -> tuple[str, str]:
    """Return the text and the reasoning of a reply in gpt-oss's channels; calls stay in the text."""
    if not text.lstrip().startswith(("<|channel|>", "<|start|>assistant")):
        return text, ""
    texts: list[str] = []
    thoughts: list[str] = []
    position = 0
    while message := _HARMONY_MESSAGE.match(text, position):
        if "to=" in message["header"]:
            texts.append(message[0])
        elif message["header"].strip().startswith("analysis"):
            thoughts.append(message["content"])
        else:
            texts.append(message["content"])
        position = message.end()
        if position == message.start():
            break
    texts.append(_CUT_HEADER.sub("", text[position:]))
    return "\n".join(filter(str.strip, texts)), "\n".join(thoughts).strip()


def _argument_types(tool: ToolSpec) -> dict[str, str]:
    schema = parse_json(tool.parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    types = {}
    for name, field in properties.items():
        json_type = field.get("type") if isinstance(field, dict) else None
        types[name] = json_type if isinstance(json_type, str) else ""
    return types


def _unparsed_call_error(endpoint: ModelEndpoint) -> AgentError:
    error = AgentError(
        f"{endpoint.name}: {endpoint.host} sent a tool call of {endpoint.model} as text",
        kind="protocol",
        retry=True,
        hint=(
            "Start the server with the tool-call parser of its model, or give the entry "
            f'{endpoint.name} in .fugurc `protocol = "text"`.'
        ),
    )
    error.tries = 2
    return error


_FENCED_ARGUMENTS = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


def with_calls_repaired(reply: Reply, tools: frozenset[str]) -> Reply:
    """Return the reply with the names of offered tools and with JSON arguments, if both can be
    recovered.
    """
    calls = tuple(_repaired(call, tools) for call in reply.calls)
    return reply if calls == reply.calls else reply.model_copy(update={"calls": calls})


def _repaired(call: Call, tools: frozenset[str]) -> Call:
    arguments = call.arguments
    try:
        parse_json(arguments or "{}")
    except ValueError as error:
        unfenced = _FENCED_ARGUMENTS.sub(r"\1", arguments)
        has_raw_line_breaks = "control character" in str(error)
        if unfenced != arguments or has_raw_line_breaks:
            with suppress(ValueError):
                arguments = json.dumps(parse_json(unfenced, strict=False), ensure_ascii=False)
    name = plain_tool_name(call.tool, tools)
    return call.model_copy(update={"tool": name, "arguments": arguments})
