"""Drives `weir lsp` with pygls, a language client that others have written: usage: lsp_client.py WEIR DIRECTORY

DIRECTORY has a.conf, with what `weir -t --fix` mends. Prints "passed" when all that was asked has come.
"""

import asyncio
import sys
from pathlib import Path

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient


async def main(weir, directory):
    client = LanguageClient("weir-test", "1")
    published = asyncio.Queue()

    @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def diagnostics(params):
        published.put_nowait(params)

    await client.start_io(weir, "lsp")
    result = await client.initialize_async(
        lsp.InitializeParams(capabilities=lsp.ClientCapabilities(), root_uri=directory.as_uri())
    )
    assert result.capabilities.hover_provider, result
    client.initialized(lsp.InitializedParams())

    path = directory / "a.conf"
    text = path.read_text()
    document = lsp.TextDocumentIdentifier(uri=path.as_uri())
    client.text_document_did_open(
        lsp.DidOpenTextDocumentParams(
            text_document=lsp.TextDocumentItem(uri=path.as_uri(), language_id="nginx", version=1, text=text)
        )
    )
    found = await published.get()
    assert found.uri == path.as_uri(), found
    deprecated = [one for one in found.diagnostics if "listen ... http2" in one.message]
    assert deprecated and deprecated[0].range.start.line == 3, found

    actions = await client.text_document_code_action_async(
        lsp.CodeActionParams(
            text_document=document, range=deprecated[0].range, context=lsp.CodeActionContext(diagnostics=deprecated)
        )
    )
    edits = actions[0].edit.changes[path.as_uri()]
    assert any("http2 on;" in edit.new_text for edit in edits), actions

    at = lsp.Position(line=3, character=3)
    hover = await client.text_document_hover_async(lsp.HoverParams(text_document=document, position=at))
    assert "listen" in hover.contents.value and "Context: `server`" in hover.contents.value, hover
    assert "Compared with nginx: the same" in hover.contents.value, hover

    end = lsp.Position(line=3, character=2)
    completion = await client.text_document_completion_async(
        lsp.CompletionParams(text_document=document, position=end)
    )
    labels = {item.label for item in completion}
    assert "server_name" in labels and "worker_processes" not in labels, labels

    parameter = lsp.Position(line=3, character=text.splitlines()[3].index("http2"))
    completion = await client.text_document_completion_async(
        lsp.CompletionParams(text_document=document, position=parameter)
    )
    labels = {item.label for item in completion}
    assert {"default_server", "reuseport", "backlog="} <= labels and "server_name" not in labels, labels

    formatted = await client.text_document_formatting_async(
        lsp.DocumentFormattingParams(
            text_document=document, options=lsp.FormattingOptions(tab_size=4, insert_spaces=True)
        )
    )
    assert "\n        listen " in formatted[0].new_text, formatted

    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    print("passed")


asyncio.run(asyncio.wait_for(main(sys.argv[1], Path(sys.argv[2])), 60))
