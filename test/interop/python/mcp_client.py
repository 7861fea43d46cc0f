"""Drives a NeMo Gym service's tools with the mcp package's own client; prints what it read. Reads {url, row, calls}."""

import asyncio
import json
import sys
import urllib.request

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

given = json.load(sys.stdin)


def post(path, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(given["url"] + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


async def main():
    offer = post("/seed_session", given["row"])["mcp"]
    async with streamablehttp_client(given["url"] + offer["url_path"], headers=offer["headers"]) as (read, write, _):
        async with ClientSession(read, write) as session:
            about = await session.initialize()
            listed = await session.list_tools()
            results = []
            for name, arguments in given["calls"]:
                result = await session.call_tool(name, arguments)
                results.append([result.isError, result.content[0].text])
    names = [tool.name for tool in listed.tools]
    print(json.dumps({"server": about.serverInfo.name, "tools": names, "results": results}))


asyncio.run(main())
