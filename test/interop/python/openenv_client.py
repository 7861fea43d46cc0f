"""Drives a German service with the OpenEnv package's own client; prints what it got as one JSON value."""

import asyncio
import json
import sys

from openenv.core.generic_client import GenericEnvClient


async def play(url, request):
    client = GenericEnvClient(base_url=url)
    first = await client.reset(task=request["task"], task_id=request["task_id"])
    listed = await client.step({"type": "list_tools"})
    observations = []
    for call in request["calls"]:
        action = {"type": "call_tool", "tool_name": call["tool"], "arguments": json.loads(call["argumentsJson"])}
        step = await client.step(action)
        error = step.observation["error"]
        content = error["message"] if error else step.observation["result"]["data"]
        observations.append({"content": content, "error": error is not None})
    arguments = {"final_text": request["finalText"], "invalid_dispatches": request["invalidDispatches"]}
    last = await client.step({"type": "call_tool", "tool_name": "verify", "arguments": arguments})
    await client.close()
    return {
        "messages": first.observation["messages"],
        "tools": listed.observation["tools"],
        "observations": observations,
        "verdict": last.observation["result"]["data"],
        "reward": last.reward,
        "done": last.done,
    }


async def main():
    url = sys.argv[1]
    requests = json.load(sys.stdin)
    print(json.dumps([await play(url, request) for request in requests]))


asyncio.run(main())
