"""Runs inside the sandbox: the harmony renderer of gpt-oss, given messages as vLLM's front end builds them."""

from __future__ import annotations

from typing import Any

from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncodingName,
    Message,
    ReasoningEffort,
    RenderConversationConfig,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    load_harmony_encoding,
)

EFFORTS = {"high": ReasoningEffort.HIGH, "medium": ReasoningEffort.MEDIUM, "low": ReasoningEffort.LOW}


def start(settings: dict) -> tuple:
    """Load the encoding. `settings["date"]` is the conversation's start date; there are no facts."""
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)

    def answer(request: dict) -> dict:
        instructions, history = leading_instructions(request["messages"])
        messages = preamble(settings["date"], instructions, request["tools"], request["reasoning_effort"])
        messages += conversation(history)
        ids = encoding.render_conversation_for_completion(
            Conversation.from_messages(without_old_analysis(messages)),
            Role.ASSISTANT,
            config=RenderConversationConfig(auto_drop_analysis=False),
        )
        ids = recipients_before_channels(encoding, ids)
        return {"text": encoding.decode_utf8(ids), "ids": ids}

    return answer, None


def preamble(date: str, instructions: str | None, tools: list | None, effort: str | None) -> list[Message]:
    """Return the system message, and a developer message when there are instructions or tools."""
    system = SystemContent.new()
    if effort is not None:
        if effort not in EFFORTS:
            raise ValueError(f"reasoning_effort={effort!r} is not one of {', '.join(EFFORTS)}")
        system = system.with_reasoning_effort(EFFORTS[effort])
    messages = [Message.from_role_and_content(Role.SYSTEM, system.with_conversation_start_date(date))]
    return messages + ([developer(instructions, tools)] if instructions or tools else [])


def developer(instructions: str | None, tools: list | None = None) -> Message:
    """Return a developer message."""
    content = DeveloperContent.new()
    if instructions is not None:
        content = content.with_instructions(instructions)
    functions = [
        ToolDescription.new(
            name=tool["function"]["name"],
            description=tool["function"].get("description") or "",
            parameters=tool["function"].get("parameters"),
        )
        for tool in tools or ()
    ]
    if functions:
        content = content.with_function_tools(functions)
    return Message.from_role_and_content(Role.DEVELOPER, content)


def leading_instructions(messages: list[dict]) -> tuple[str | None, list[dict]]:
    """Take a leading system or developer message off: its text becomes the developer message's instructions."""
    if messages and messages[0].get("role") in ("system", "developer"):
        return flat_text(messages[0].get("content")), messages[1:]
    return None, messages


def conversation(messages: list[dict]) -> list[Message]:
    """Return the harmony messages of chat messages; results of tools are named by the calls' ids."""
    names = {
        call.get("id"): call.get("function", {}).get("name")
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    return [one for message in messages for one in harmony_messages(message, names)]


def harmony_messages(message: dict, names: dict) -> list[Message]:
    """Return what one chat message becomes: one harmony message per part of it."""
    role, content = message.get("role"), message.get("content")
    if role == "assistant":
        return assistant_messages(message)
    if role == "tool":
        author = Author.new(Role.TOOL, f"functions.{names.get(message.get('tool_call_id', ''), '')}")
        result = Message.from_author_and_content(author, flat_text(content) or "")
        return [result.with_channel("commentary").with_recipient("assistant")]
    if role in ("system", "developer"):
        instructions = flat_text(content)
        return [] if instructions is None else [developer(instructions)]
    return [Message.from_role_and_contents(role, texts(content))]


def assistant_messages(message: dict) -> list[Message]:
    """Return analysis, commentary, calls and final answer of one assistant turn, in the order the front end has."""

    def spoken(text: str, channel: str) -> Message:
        return Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)

    analysis = [spoken(message["reasoning"], "analysis")] if message.get("reasoning") else []
    if not message.get("tool_calls"):
        answer = texts(message.get("content"))
        if not answer or not answer[0].text:
            return analysis
        return [*analysis, Message.from_role_and_contents(Role.ASSISTANT, answer).with_channel("final")]
    text = flat_text(message.get("content"))
    calls = []
    for call in message["tool_calls"]:
        function = call.get("function", {})
        one = spoken(function.get("arguments") or "", "commentary")
        calls.append(one.with_recipient(f"functions.{function.get('name', '')}").with_content_type("json"))
    return [*([spoken(text, "commentary")] if text else []), *analysis, *calls]


def flat_text(content: Any) -> str | None:
    """Return the text parts of content, joined; None when there are none."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    found = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | dict)]
    found = [text for text in found if text is not None]
    return "".join(found) if found else None


def texts(content: Any) -> list[TextContent]:
    """Return content as harmony's text contents."""
    content = content or ""
    if isinstance(content, str):
        return [TextContent(text=content)]
    return [TextContent(text=part.get("text", "")) for part in content]


def without_old_analysis(messages: list[Message]) -> list[Message]:
    """Drop the analysis of turns before the last final answer."""
    finals = [i for i, one in enumerate(messages) if one.author.role == "assistant" and one.channel == "final"]
    last = finals[-1] if finals else -1
    return [one for i, one in enumerate(messages) if i >= last or one.channel != "analysis"]


def recipients_before_channels(encoding: Any, ids: list[int]) -> list[int]:
    """Rewrite headers of calls to the form gpt-oss was trained on, as the front end does.

    The library writes `assistant<|channel|>commentary to=f <|constrain|>json`, the model knows
    `assistant to=f<|channel|>commentary json`.
    """

    def token(text: str) -> int:
        return encoding.encode(text, allowed_special="all")[0]

    begin, channel, constrain, end = map(token, ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"))
    result: list[int] = []
    place = 0
    while place < len(ids):
        if ids[place] == begin and end in ids[place + 1 :]:
            stop = ids.index(end, place + 1)
            header = ids[place + 1 : stop]
            if rewritten := _legacy_header(encoding, header, channel, constrain):
                result += [begin, *rewritten, end]
                place = stop + 1
                continue
        result.append(ids[place])
        place += 1
    return result


def _legacy_header(encoding: Any, header: list[int], channel: int, constrain: int) -> list[int] | None:
    """Return a header of a call in the older form, or None when it is no such header."""
    if channel not in header or constrain not in header[header.index(channel) :]:
        return None
    middle = header.index(channel)
    tail = header.index(constrain, middle)
    author, kind = encoding.decode(header[:middle]), encoding.decode(header[tail + 1 :])
    name, separator, recipient = encoding.decode(header[middle + 1 : tail]).partition(" to=")
    if author != "assistant" or not separator or not recipient.endswith(" ") or not (name and recipient[:-1] and kind):
        return None
    return [*encoding.encode(f"assistant to={recipient[:-1]}"), channel, *encoding.encode(f"{name} {kind}")]
