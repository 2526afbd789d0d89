"""`fugu mcp serve`: fugu as an MCP server on standard input and output.

The SDK speaks the protocol. fugu offers its versions up to 2025-11-25, because in newer ones a
server may ask the client nothing in the middle of a call. Newer clients speak the older versions
too. mcp_calls.py holds the tools.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from fugu_cli import __version__
from fugu_cli.cli.command_flags import McpServeFlags
from fugu_cli.cli.flags import check_empty
from fugu_cli.errors import ConfigError, FuguError

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server.lowlevel import Server
    from mcp.shared.message import SessionMessage

    from fugu_cli.system.stdio_frames import StdioFrames

INSTRUCTIONS = (
    "fugu is a coding agent with a pool of models. It works in the user's repository by itself: "
    "`run` carries a request out and returns the answer and the changed files, `review` looks for "
    "faults in the uncommitted change, `ask_agent` asks one model about the repository, `sessions` "
    "lists earlier work. fugu sees nothing of your conversation, so write everything it needs."
)


def serve_client(flags: McpServeFlags) -> int:
    """Serve the client that started this process until it closes standard input. Raises ConfigError
    where the administrator's settings cannot be read; the client's first request is answered with
    that.
    """
    check_empty(agent=flags.agent, append_system_prompt=flags.append_system_prompt)
    from fugu_cli.cli.current_folder import say
    from fugu_cli.cli.output import take_standard_streams
    from fugu_cli.config.loader import check_managed_settings
    from fugu_cli.extensions.mcp_client import load_sdk

    if sys.stdin is not None and sys.stdin.isatty():
        say("this is for an MCP client, which starts it and speaks to it (`fugu help mcp-serve`)")
    streams = take_standard_streams()
    try:
        check_managed_settings()
    except ConfigError as error:
        asyncio.run(_refuse(error, *streams))
        raise
    load_sdk()
    return asyncio.run(_serve(flags, *streams))


async def _refuse(error: FuguError, source: int, sink: int) -> None:
    """Answer the client's first request with an error."""
    from fugu_cli.system.stdio_frames import INTERNAL_ERROR, StdioFrames

    frames = StdioFrames(source, sink)
    while (frame := await frames.receive()) is not None:
        if "id" in frame:
            fault = {"code": INTERNAL_ERROR, "message": f"{error}; {error.hint}"}
            await frames.send({"jsonrpc": "2.0", "id": frame["id"], "error": fault})
            break
    await frames.close()


async def _serve(flags: McpServeFlags, source: int, sink: int) -> int:
    from fugu_cli.cli.output import watch_client
    from fugu_cli.system import signals
    from fugu_cli.system.stdio_frames import StdioFrames

    stopped = watch_client(sink)
    serving = asyncio.create_task(_answer_client(_build_server(flags), StdioFrames(source, sink)))
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (serving, stopping):
            task.cancel()
        await asyncio.gather(serving, stopping, return_exceptions=True)
    if not serving.cancelled():
        serving.result()  # raises what ended it, if that was a bug
    signals.exit_on_signals(asyncio.get_running_loop(), 0)
    return 0


def _build_server(flags: McpServeFlags) -> Server[Any]:
    from mcp.server.lowlevel import Server

    from fugu_cli.cli.mcp_calls import ServedTools

    tools = ServedTools(flags)
    return Server(
        "fugu",
        version=__version__,
        title="fugu",
        instructions=INSTRUCTIONS,
        on_list_tools=tools.list_tools,
        on_call_tool=tools.call_tool,
    )


async def _answer_client(server: Server[Any], frames: StdioFrames) -> None:
    """Answer the client until its frames end. Calls that still run are cancelled then."""
    import anyio
    from mcp.server.runner import serve_loop
    from mcp.shared.message import SessionMessage

    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    forwarding = [
        asyncio.create_task(_forward_requests(frames, to_server)),
        asyncio.create_task(_forward_answers(frames, from_server)),
    ]
    try:
        await serve_loop(server, from_client, to_client, lifespan_state={})
    finally:
        for task in forwarding:
            task.cancel()
        await asyncio.gather(*forwarding, return_exceptions=True)
        await frames.close()
    for task in forwarding:
        if not task.cancelled():
            task.result()


async def _forward_requests(
    frames: StdioFrames, server: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    import mcp_types
    from mcp.shared.message import SessionMessage
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
    from pydantic import ValidationError

    from fugu_cli.system.stdio_frames import INVALID_REQUEST

    async with server:
        while (frame := await frames.receive()) is not None:
            error: dict[str, Any] = {}
            version = _version_of_request(frame)
            if "id" in frame and version:
                error = {
                    "code": mcp_types.UNSUPPORTED_PROTOCOL_VERSION,
                    "message": f"fugu does not speak {version}: greet it with `initialize`",
                    "data": {
                        "supported": list(HANDSHAKE_PROTOCOL_VERSIONS),
                        "requested": version,
                    },
                }
            else:
                try:
                    message = mcp_types.jsonrpc_message_adapter.validate_python(
                        frame, by_name=False
                    )
                except ValidationError:
                    error = {"code": INVALID_REQUEST, "message": "Invalid request: no JSON-RPC 2.0"}
            if error:
                await frames.send({"jsonrpc": "2.0", "id": frame.get("id"), "error": error})
            else:
                await server.send(SessionMessage(message))


def _version_of_request(frame: dict[str, Any]) -> str:
    """Return the protocol version that a request names, "" if it names none. Requests name one from
    the version 2026-07-28 on.
    """
    from mcp_types import PROTOCOL_VERSION_META_KEY

    params = frame.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
    return version if isinstance(version, str) else ""


async def _forward_answers(
    frames: StdioFrames, server: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    async with server:
        async for message in server:
            dumped = message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
            await frames.send(dumped)
